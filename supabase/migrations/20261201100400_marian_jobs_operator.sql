-- What an operator does: stop a job, try a dead one again, clear out, look.

create function public.cancel_job(p_id uuid)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
as $$
begin
  perform public.marian_jobs_check_isolation('cancel_job');
  return query
    update public.marian_jobs j
       set status = 'dead', lease_until = null, error = 'cancelled', updated_at = clock_timestamp()
     where j.id = p_id and j.status in ('queued', 'retrying', 'running')
    returning j.*;
end
$$;

comment on function public.cancel_job(uuid) is
  'Ends a job that is not finished: dead, with the error "cancelled". Returns it, or no row. A running worker learns it at its next lease extension.';

create function public.retry_job(p_id uuid, p_max_attempts integer default null)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
as $$
declare
  v_now  constant timestamptz := clock_timestamp();
  v_job  public.marian_jobs;
  v_live uuid;
begin
  if p_max_attempts < 1 then
    raise exception using errcode = 'MJ400', message = 'retry_job: p_max_attempts must be at least 1';
  end if;
  perform public.marian_jobs_check_isolation('retry_job');
  loop
    begin
      update public.marian_jobs j
         set status = 'queued', run_after = v_now, updated_at = v_now,
             max_attempts = least(j.attempts::bigint + coalesce(p_max_attempts, j.max_attempts), 2147483647)::integer
       where j.id = p_id and j.status = 'dead'
      returning j.* into v_job;
      if found then
        perform public.marian_jobs_wake(array[v_job.type]);
        return next v_job;
      end if;
      return;
    exception
      when unique_violation then
        null; -- a live job owns the key: name it below, or try again when it has died meanwhile
    end;
    select l.id into v_live
      from public.marian_jobs d
      join public.marian_jobs l on l.idempotency_key = d.idempotency_key and l.status <> 'dead'
     where d.id = p_id;
    if found then
      raise exception using errcode = 'MJ410', message = format('retry_job: job %s owns the key of job %s', v_live, p_id),
        hint = 'Cancel or await that job first.';
    end if;
  end loop;
end
$$;

comment on function public.retry_job(uuid, integer) is
  'Queues a dead job again, due at once, with a fresh budget (its former one, or p_max_attempts). Returns it, or no row when it is not dead. Raises MJ410, naming the job, when a live job owns its key.';

create function public.prune_jobs(
  p_succeeded_older interval,
  p_dead_older      interval,
  p_limit           integer default 10000
)
returns integer
language plpgsql
set search_path = ''
set enable_seqscan = off
set enable_tidscan = on
as $$
declare
  v_now     constant timestamptz := clock_timestamp();
  c_pages   constant integer := 256; -- heap pages looked at in one statement: 2 MB
  v_pages   bigint := pg_relation_size('public.marian_jobs') / current_setting('block_size')::bigint;
  v_chunks  bigint;
  v_chunk   bigint;
  v_pruned  integer := 0;
  v_count   integer;
begin
  if p_succeeded_older < interval '0' or p_dead_older < interval '0' then
    raise exception using errcode = 'MJ400', message = 'prune_jobs: an age must not be negative';
  end if;
  if p_limit is null or p_limit < 1 then
    raise exception using errcode = 'MJ400', message = 'prune_jobs: p_limit must be at least 1';
  end if;
  perform public.marian_jobs_check_isolation('prune_jobs');

  -- No index knows the finished rows, and none should: every job would pay for it. The heap is walked in chunks of
  -- pages, from a random one around: a walk that always began at the first page would meet, call after call, the
  -- pages that the calls before have emptied.
  v_chunks := (v_pages + c_pages - 1) / c_pages;
  v_chunk := floor(random() * v_chunks);
  for i in 1 .. v_chunks loop
    delete from public.marian_jobs j
     where j.ctid = any (array(
       select d.ctid
         from public.marian_jobs d
        where d.ctid >= format('(%s,0)', v_chunk * c_pages)::tid
          and d.ctid < format('(%s,0)', (v_chunk + 1) * c_pages)::tid
          and ((d.status = 'succeeded' and d.updated_at < v_now - p_succeeded_older)
            or (d.status = 'dead' and d.updated_at < v_now - p_dead_older))
        limit p_limit - v_pruned
          for update skip locked));
    get diagnostics v_count = row_count;
    v_pruned := v_pruned + v_count;
    exit when v_pruned >= p_limit;
    v_chunk := (v_chunk + 1) % v_chunks;
  end loop;
  return v_pruned;
end
$$;

comment on function public.prune_jobs(interval, interval, integer) is
  'Deletes up to p_limit succeeded and dead jobs older than given (null: keep that kind) and returns how many. Never touches an unfinished job, never waits for a lock. Call until it answers less than p_limit.';

create function public.job_stats()
returns table (
  type           text,
  status         text,
  count          bigint,
  oldest_due_age interval,
  expired_leases bigint
)
language sql
stable
set search_path = ''
as $$
  select j.type, j.status, count(*),
         statement_timestamp() - min(j.run_after) filter (
           where j.status in ('queued', 'retrying') and j.run_after <= statement_timestamp()),
         count(*) filter (where j.status = 'running' and j.lease_until <= statement_timestamp())
    from public.marian_jobs j
   group by j.type, j.status
   order by j.type, j.status
$$;

comment on function public.job_stats() is
  'Per type and status: how many jobs, how long the oldest due one has waited (null: none is due), how many leases are over. Reads the whole table.';

select public.marian_jobs_restrict(
  'public.cancel_job(uuid)',
  'public.retry_job(uuid, integer)',
  'public.prune_jobs(interval, interval, integer)',
  'public.job_stats()');

-- PostgREST reads the schema anew; Supabase does this by a trigger of its own, other servers need to be told.
notify pgrst, 'reload schema';
