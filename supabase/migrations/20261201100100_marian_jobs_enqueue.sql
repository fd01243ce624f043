-- Getting jobs in. A key's live row is found or made by the partial unique index, never by looking first.

-- Own errors, the same everywhere: MJ400 bad argument · MJ409 key owned by another owner · MJ410 retry refused, a live
-- job owns the key · MJ425 the transaction's snapshot is too old for an answer (never 40001: PostgREST repeats that).

create function public.job_backoff(p_attempt integer)
returns interval
language sql
immutable
parallel safe
set search_path = ''
as $$
  -- The exponent is capped before the power is taken: 2^9 s is beyond the cap, and any attempt has an answer.
  select least(interval '1 second' * power(2, least(greatest(p_attempt, 1) - 1, 9)), interval '5 minutes')
$$;

comment on function public.job_backoff(integer) is
  'The wait after the given failed attempt: 1 s, 2 s, 4 s ... 256 s, then 5 minutes for ever. Never overflows.';

create function public.marian_jobs_wake(p_types text[])
returns void
language plpgsql
set search_path = ''
as $$
declare
  v_type text;
begin
  -- NOTIFY takes one lock for the whole database at commit, so it is sent only where somebody sleeps. A worker that has
  -- found nothing to do holds a shared advisory lock per type while it sleeps; not getting the exclusive one says so.
  -- Two callers that meet here make one needless notification, no more; a lost one costs a poll interval.
  foreach v_type in array p_types loop
    if pg_try_advisory_lock(hashtextextended('marian_jobs:' || v_type, 0)) then
      perform pg_advisory_unlock(hashtextextended('marian_jobs:' || v_type, 0));
    else
      perform pg_notify('marian_jobs', v_type);
    end if;
  end loop;
end
$$;

comment on function public.marian_jobs_wake(text[]) is
  'Sends a notification on channel marian_jobs for each type that a sleeping worker waits for; nothing where nobody sleeps.';

create function public.enqueue_job(
  p_type            text,
  p_payload         jsonb default '{}',
  p_user_id         uuid default null,
  p_idempotency_key text default null,
  p_priority        integer default 0,
  p_max_attempts    integer default 3,
  p_run_after       timestamptz default null,
  p_id              uuid default null,
  p_delay           interval default null
)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
as $$
declare
  -- The clock, not now(): in a transaction that has been open for a while now() lies in the past.
  v_now constant timestamptz := clock_timestamp();
  v_job public.marian_jobs;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return query select * from public.enqueue_jobs(jsonb_build_array(jsonb_build_object(
      'type', p_type, 'payload', p_payload, 'user_id', p_user_id, 'idempotency_key', p_idempotency_key,
      'priority', p_priority, 'max_attempts', p_max_attempts, 'run_after', p_run_after, 'id', p_id, 'delay', p_delay)));
    return;
  end if;

  -- Around again only when the row in the way went dead or was pruned between the two statements.
  loop
    -- No conflict target: a resent call meets its own primary key, a duplicate meets the key's live row.
    insert into public.marian_jobs as j
      (id, user_id, type, payload, idempotency_key, priority, max_attempts, run_after, created_at, updated_at)
    values
      (coalesce(p_id, gen_random_uuid()), p_user_id, p_type, coalesce(p_payload, '{}'), p_idempotency_key,
       coalesce(p_priority, 0), coalesce(p_max_attempts, 3), coalesce(p_run_after, v_now + p_delay, v_now), v_now, v_now)
    on conflict do nothing
    returning j.* into v_job;

    if found then
      if v_job.run_after < v_now + interval '1 minute' then
        perform public.marian_jobs_wake(array[p_type]);
      end if;
      return next v_job;
      return;
    end if;

    select j.* into v_job from public.marian_jobs j where j.id = p_id;
    if found then
      if (v_job.user_id, v_job.type, v_job.idempotency_key) is distinct from (p_user_id, p_type, p_idempotency_key) then
        raise exception using errcode = 'MJ409', message = 'enqueue_job: another job has this id',
          hint = 'Take a fresh random id for every new job.';
      end if;
      return next v_job;
      return;
    end if;

    select j.* into v_job from public.marian_jobs j where j.idempotency_key = p_idempotency_key and j.status <> 'dead';
    if found then
      if v_job.user_id is distinct from p_user_id then
        raise exception using errcode = 'MJ409', message = 'enqueue_job: this idempotency key belongs to another owner',
          hint = 'Prefix idempotency keys with the owner.';
      end if;
      return next v_job;
      return;
    end if;
  end loop;
end
$$;

comment on function public.enqueue_job(text, jsonb, uuid, text, integer, integer, timestamptz, uuid, interval) is
  'Makes a job and returns its row; where a live job already owns the key, returns that row unchanged. Compare the id with p_id to tell. Due at p_run_after, or p_delay from now, or at once. Raises MJ409 when the key''s owner is another user. Sending it again with the same p_id is harmless.';

create function public.enqueue_jobs(p_jobs jsonb)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
as $$
declare
  v_now     constant timestamptz := clock_timestamp();
  v_unknown text;
  v_pending jsonb;
  v_known   uuid[];   -- per element of p_jobs: the id of its row
  v_again   boolean;
begin
  if p_jobs is null or jsonb_typeof(p_jobs) <> 'array' then
    raise exception using errcode = 'MJ400', message = 'enqueue_jobs: p_jobs must be a JSON array of objects';
  end if;
  if exists (select from jsonb_array_elements(p_jobs) e where jsonb_typeof(e) <> 'object') then
    raise exception using errcode = 'MJ400', message = 'enqueue_jobs: every element of p_jobs must be a JSON object';
  end if;
  select k into v_unknown
    from jsonb_array_elements(p_jobs) e cross join lateral jsonb_object_keys(e) k
   where k not in ('type', 'payload', 'user_id', 'idempotency_key', 'priority', 'max_attempts', 'run_after', 'id', 'delay')
   limit 1;
  if found then
    raise exception using errcode = 'MJ400', message = format('enqueue_jobs: unknown name %s in an element', to_json(v_unknown)),
      hint = 'Elements have the argument names of enqueue_job without p_.';
  end if;

  -- Every element gets its id first, so that a row can be told from one that was there before.
  select coalesce(jsonb_agg(e || jsonb_build_object('id', coalesce(e ->> 'id', gen_random_uuid()::text), 'n', n) order by n), '[]')
    into v_pending
    from jsonb_array_elements(p_jobs) with ordinality as x(e, n);

  loop
    begin
      -- In the order of the keys, so that two loads with overlapping keys wait for each other instead of deadlocking;
      -- made a microsecond apart, so that jobs due together run in the order they were given.
      insert into public.marian_jobs
        (id, user_id, type, payload, idempotency_key, priority, max_attempts, run_after, created_at, updated_at)
      select r.id, r.user_id, r.type, coalesce(r.payload, '{}'), r.idempotency_key, coalesce(r.priority, 0),
             coalesce(r.max_attempts, 3), coalesce(r.run_after, v_now + r.delay, v_now), v_now + r.n * interval '1 microsecond', v_now
        from jsonb_to_recordset(v_pending) as r(id uuid, user_id uuid, type text, payload jsonb, idempotency_key text,
                                                priority integer, max_attempts integer, run_after timestamptz,
                                                delay interval, n bigint)
       order by r.idempotency_key, r.n
      on conflict do nothing;
    exception
      when serialization_failure then
        raise exception using errcode = 'MJ425',
          message = 'enqueue_jobs: a job with this key or id was made after this transaction''s snapshot was taken',
          hint = 'Enqueue from a READ COMMITTED transaction, or start the transaction anew.';
    end;

    select array_agg(coalesce(by_id.id, by_key.id) order by r.n),
           bool_or(coalesce(by_id.id, by_key.id) is null)
      into v_known, v_again
      from jsonb_to_recordset(v_pending) as r(id uuid, user_id uuid, type text, idempotency_key text, n bigint)
      left join public.marian_jobs by_id on by_id.id = r.id
      left join public.marian_jobs by_key
        on by_id.id is null and by_key.idempotency_key = r.idempotency_key and by_key.status <> 'dead';
    exit when not coalesce(v_again, false);
  end loop;

  if exists (
    select from jsonb_to_recordset(v_pending) as r(id uuid, user_id uuid, type text, idempotency_key text, n bigint)
      join public.marian_jobs j on j.id = v_known[r.n]
     where j.user_id is distinct from r.user_id
        or (j.id = r.id and (j.type, j.idempotency_key) is distinct from (r.type, r.idempotency_key))
  ) then
    raise exception using errcode = 'MJ409', message = 'enqueue_jobs: an idempotency key or id belongs to another owner or job',
      hint = 'Prefix idempotency keys with the owner. Nothing was enqueued.';
  end if;

  perform public.marian_jobs_wake(array(select distinct e ->> 'type' from jsonb_array_elements(p_jobs) e));

  return query
    select j.*
      from unnest(v_known) with ordinality as k(id, n)
      join public.marian_jobs j on j.id = k.id
     order by k.n;
end
$$;

comment on function public.enqueue_jobs(jsonb) is
  'Makes many jobs in one transaction: one row per element, in order, each as enqueue_job would answer it. All or nothing: any refusal (MJ409, a violated check) refuses the whole call.';

create function public.marian_jobs_enqueue_batch(p_jobs jsonb)
returns jsonb
language sql
set search_path = ''
as $$
  -- One value, however many rows: an API cuts an answer of more than 1,000 rows after its effect.
  select coalesce(jsonb_agg(to_jsonb(j)), '[]') from public.enqueue_jobs(p_jobs) j
$$;

comment on function public.marian_jobs_enqueue_batch(jsonb) is
  'Internal to clients of the API: enqueue_jobs with its rows as one JSON array.';

select public.marian_jobs_restrict(
  'public.job_backoff(integer)',
  'public.marian_jobs_wake(text[])',
  'public.enqueue_job(text, jsonb, uuid, text, integer, integer, timestamptz, uuid, interval)',
  'public.enqueue_jobs(jsonb)',
  'public.marian_jobs_enqueue_batch(jsonb)');
