-- Something to look at after `supabase db reset`: a user with a job in each state that a user meets. Harmless to run again.

insert into auth.users (instance_id, id, aud, role, email, email_confirmed_at, raw_app_meta_data, raw_user_meta_data, created_at, updated_at)
values ('00000000-0000-0000-0000-000000000000', '5eed0000-0000-4000-8000-000000000001', 'authenticated', 'authenticated',
        'ada@example.com', now(), '{"provider": "email", "providers": ["email"]}', '{"name": "Ada"}', now(), now())
on conflict do nothing;

-- A row that is already there, in whatever state, is left alone: that is what the keys are for.
do $$
declare
  v_user constant uuid := '5eed0000-0000-4000-8000-000000000001';
  v_job  public.marian_jobs;
begin
  if exists (select from public.marian_jobs where user_id = v_user) then
    return;
  end if;

  perform public.enqueue_job('seed-summary', '{"document": 1}', v_user, 'seed:succeeded');
  select * into v_job from public.claim_job(array['seed-summary']);
  perform public.complete_job(v_job.id, v_job.attempts);

  perform public.enqueue_job('seed-import', '{"file": "missing.csv"}', v_user, 'seed:dead');
  select * into v_job from public.claim_job(array['seed-import']);
  perform public.fail_job(v_job.id, v_job.attempts, 'FileNotFoundError: missing.csv', null, true);

  perform public.enqueue_job('seed-sync', '{"source": "calendar"}', v_user, 'seed:retrying', p_max_attempts => 5);
  select * into v_job from public.claim_job(array['seed-sync']);
  perform public.fail_job(v_job.id, v_job.attempts, 'TimeoutError: the calendar did not answer', interval '1 day');

  perform public.enqueue_job('echo', '{"hello": "Ada"}', v_user, 'seed:queued');
  perform public.enqueue_job('echo', '{"hello": "tomorrow"}', v_user, 'seed:scheduled', p_delay => interval '1 day');
end
$$;
