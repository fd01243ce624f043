-- What a worker reports of the jobs it holds. Every report names the attempt it belongs to, the fencing token; when the
-- row has moved on the report is refused: no row comes back and nothing has changed.
--
-- `lease_until is not null` says running (a check holds the two together) without offering the planner the partial
-- lease index, on which it would look for ids by reading every running row: measured at 30 to 222 ms a call where its
-- statistics said that nothing runs. So the primary key drives (enable_hashjoin off rules out reading the table).
-- Rows are taken in the order of their ids, so that two reports that share rows cannot deadlock.

create function public.complete_jobs(p_ids uuid[], p_attempts integer[])
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
  v_now   constant timestamptz := clock_timestamp();
  v_count integer;
begin
  perform public.marian_jobs_check_held('complete_jobs', p_ids, p_attempts);
  perform public.marian_jobs_check_isolation('complete_jobs');
  return query
    update public.marian_jobs j
       set status = 'succeeded', lease_until = null, error = null, updated_at = v_now
      from (select distinct h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt) order by 1, 2) h
     where j.id = h.id and j.attempts = h.attempt and j.lease_until is not null
    returning j.*;
  get diagnostics v_count = row_count;

  -- Only this very attempt can have completed the row before: the first call's reply was lost.
  if v_count < cardinality(p_ids) then
    return query
      select j.*
        from (select distinct h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt)) h
       cross join lateral (select k.* from public.marian_jobs k where k.id = h.id offset 0) j
       where j.attempts = h.attempt and j.status = 'succeeded' and j.updated_at < v_now;
  end if;
end
$$;

comment on function public.complete_jobs(uuid[], integer[]) is
  'Marks jobs succeeded and returns the rows accepted; a job whose attempt is not the one named, or that is not running, is left out. Sending it again is harmless and answers the same.';

create function public.marian_jobs_settle(p_ids uuid[], p_attempts integer[])
returns table (id uuid, attempt integer)
language plpgsql
set search_path = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
  v_now   constant timestamptz := clock_timestamp();
  v_count integer;
begin
  perform public.marian_jobs_check_held('complete_jobs', p_ids, p_attempts);
  perform public.marian_jobs_check_isolation('complete_jobs');
  update public.marian_jobs j
     set status = 'succeeded', lease_until = null, error = null, updated_at = v_now
    from (select h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt) order by 1) h
   where j.id = h.id and j.attempts = h.attempt and j.lease_until is not null;
  get diagnostics v_count = row_count;
  if v_count < cardinality(p_ids) then
    return query
      select h.id, h.attempt
        from unnest(p_ids, p_attempts) as h(id, attempt)
        left join lateral (select k.status, k.attempts from public.marian_jobs k where k.id = h.id offset 0) j on true
       where (j.status, j.attempts) is distinct from ('succeeded', h.attempt);
  end if;
end
$$;

comment on function public.marian_jobs_settle(uuid[], integer[]) is
  'Internal to workers: complete_jobs that returns what it refused instead of the rows it accepted, which is mostly nothing.';

create function public.complete_job(p_id uuid, p_attempt integer)
returns setof public.marian_jobs
language sql
set search_path = ''
as $$
  select j.* from public.complete_jobs(array[p_id], array[p_attempt]) j
$$;

comment on function public.complete_job(uuid, integer) is
  'Marks a job succeeded and returns it, or no row when the attempt is not the one that holds it. See complete_jobs.';

create function public.marian_jobs_bounded_error(p_error text)
returns text
language sql
immutable
parallel safe
set search_path = ''
as $$
  select case when char_length(p_error) <= 8192 then p_error
              else left(p_error, 4096) || E'\n[...]\n' || right(p_error, 4089) end
$$;

comment on function public.marian_jobs_bounded_error(text) is
  'An error text of at most 8192 characters: head and tail of a longer one.';

create function public.fail_jobs(
  p_ids      uuid[],
  p_attempts integer[],
  p_errors   text[],
  p_retry_in interval[] default null,
  p_dead     boolean[] default null
)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
  v_now   constant timestamptz := clock_timestamp();
  v_count integer;
begin
  perform public.marian_jobs_check_held('fail_jobs', p_ids, p_attempts);
  perform public.marian_jobs_check_isolation('fail_jobs');
  if cardinality(p_errors) is distinct from cardinality(p_ids)
     or cardinality(p_retry_in) <> cardinality(p_ids) or cardinality(p_dead) <> cardinality(p_ids) then
    raise exception using errcode = 'MJ400', message = 'fail_jobs: all arrays must be of one length';
  end if;
  if exists (select from unnest(p_retry_in) r where r not between interval '0' and interval '365 days') then
    raise exception using errcode = 'MJ400', message = 'fail_jobs: a retry delay must be between zero and 365 days';
  end if;
  return query
    with report as (
      select distinct on (h.id, h.attempt) h.id, h.attempt, public.marian_jobs_bounded_error(coalesce(h.error, 'failed')) as error,
             h.retry_in, coalesce(h.dead, false) as dead
        from unnest(p_ids, p_attempts, p_errors, p_retry_in, p_dead) as h(id, attempt, error, retry_in, dead)
       order by h.id, h.attempt
    ), failed as (
      update public.marian_jobs j
         set status = case when h.dead or j.attempts >= j.max_attempts then 'dead' else 'retrying' end,
             run_after = case when h.dead or j.attempts >= j.max_attempts then j.run_after
                              else v_now + coalesce(h.retry_in, public.job_backoff(j.attempts)) end,
             lease_until = null, error = h.error, updated_at = v_now
        from report h
       where j.id = h.id and j.attempts = h.attempt and j.lease_until is not null
      returning j.*
    ), woken as materialized (
      -- A retry that is due soon is work for whoever sleeps now.
      select public.marian_jobs_wake(array(
        select distinct f.type from failed f where f.status = 'retrying' and f.run_after < v_now + interval '1 minute'))
    )
    select f.* from failed f cross join woken;
  get diagnostics v_count = row_count;

  -- The first call's reply was lost: the row stands as that call left it, with its error.
  if v_count < cardinality(p_ids) then
    return query
      select j.*
        from (select distinct on (h.id, h.attempt) h.id, h.attempt, public.marian_jobs_bounded_error(coalesce(h.error, 'failed')) as error
                from unnest(p_ids, p_attempts, p_errors) as h(id, attempt, error) order by h.id, h.attempt) h
       cross join lateral (select k.* from public.marian_jobs k where k.id = h.id offset 0) j
       where j.attempts = h.attempt and j.status in ('retrying', 'dead') and j.error = h.error and j.updated_at < v_now;
  end if;
end
$$;

comment on function public.fail_jobs(uuid[], integer[], text[], interval[], boolean[]) is
  'Records failures: retrying after the given delay (null: job_backoff), or dead when asked for or when the budget is used. Returns the rows in their new state; a late report is left out. Sending it again is harmless and answers the same.';

create function public.fail_job(
  p_id       uuid,
  p_attempt  integer,
  p_error    text,
  p_retry_in interval default null,
  p_dead     boolean default false
)
returns setof public.marian_jobs
language sql
set search_path = ''
as $$
  select j.* from public.fail_jobs(array[p_id], array[p_attempt], array[p_error], array[p_retry_in], array[p_dead]) j
$$;

comment on function public.fail_job(uuid, integer, text, interval, boolean) is
  'Records a failure and returns the job in its new state, or no row when the attempt is not the one that holds it. See fail_jobs.';

create function public.extend_leases(
  p_ids      uuid[],
  p_attempts integer[],
  p_lease    interval default '30 seconds'
)
returns setof uuid
language plpgsql
set search_path = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  perform public.marian_jobs_check_held('extend_leases', p_ids, p_attempts);
  perform public.marian_jobs_check_lease('extend_leases', p_lease);
  perform public.marian_jobs_check_isolation('extend_leases');
  return query
    update public.marian_jobs j
       set lease_until = v_now + p_lease, updated_at = v_now
      from (select distinct h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt) order by 1, 2) h
     where j.id = h.id and j.attempts = h.attempt and j.lease_until is not null
    returning j.id;
end
$$;

comment on function public.extend_leases(uuid[], integer[], interval) is
  'Extends leases to now + p_lease and returns the ids still held; an id left out was cancelled, reclaimed or finished, and its handler should stop.';

create function public.release_jobs(
  p_ids      uuid[],
  p_attempts integer[],
  p_delay    interval default '0'
)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  perform public.marian_jobs_check_held('release_jobs', p_ids, p_attempts);
  perform public.marian_jobs_check_isolation('release_jobs');
  if p_delay is null or p_delay not between interval '0' and interval '365 days' then
    raise exception using errcode = 'MJ400', message = 'release_jobs: a delay must be between zero and 365 days';
  end if;
  return query
    with released as (
      update public.marian_jobs j
         set status = 'queued', lease_until = null, run_after = v_now + p_delay,
             max_attempts = least(j.max_attempts::bigint + 1, 2147483647)::integer, updated_at = v_now
        from (select distinct h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt) order by 1, 2) h
       where j.id = h.id and j.attempts = h.attempt and j.lease_until is not null
      returning j.*
    ), woken as materialized (
      select public.marian_jobs_wake(array(select distinct r.type from released r))
    )
    select r.* from released r cross join woken;
end
$$;

comment on function public.release_jobs(uuid[], integer[], interval) is
  'Gives jobs back: queued again after p_delay, with one attempt added to the budget so that a deploy costs nothing. Returns the rows given back; a late report is left out.';

create function public.reclaim_expired(p_limit integer default 1000)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_tidscan = on
as $$
declare
  v_now constant timestamptz := clock_timestamp();
  v_expired tid[];
begin
  if p_limit is null or p_limit not between 1 and 1000 then
    raise exception using errcode = 'MJ400', message = 'reclaim_expired: p_limit must be between 1 and 1000';
  end if;
  perform public.marian_jobs_check_isolation('reclaim_expired');
  -- marian_jobs_lease_idx; a row that its worker is completing at this moment is skipped, and rightly so.
  v_expired := array(
    select j.ctid
      from public.marian_jobs j
     where j.status = 'running' and j.lease_until <= v_now
     order by j.lease_until
     limit p_limit
       for update skip locked);
  return query
    with reclaimed as (
      update public.marian_jobs j
         set status = case when j.attempts >= j.max_attempts then 'dead' else 'retrying' end,
             run_after = case when j.attempts >= j.max_attempts then j.run_after else v_now end,
             lease_until = null, error = 'lease ran out: the worker was lost or too slow', updated_at = v_now
       where j.ctid = any (v_expired)
      returning j.*
    ), woken as materialized (
      select public.marian_jobs_wake(array(select distinct r.type from reclaimed r where r.status = 'retrying'))
    )
    select r.* from reclaimed r cross join woken;
end
$$;

comment on function public.reclaim_expired(integer) is
  'Takes back up to p_limit jobs whose lease is over: retrying and due at once, or dead when the budget is used. Returns them. Any worker may call it at any time.';

create function public.marian_jobs_poll(
  p_limit integer,
  p_types text[],
  p_lease interval,
  p_room  integer[] default null
)
returns table (
  reclaimed       integer,
  due_in          interval,
  id              uuid,
  user_id         uuid,
  type            text,
  status          text,
  payload         jsonb,
  idempotency_key text,
  attempts        integer,
  max_attempts    integer,
  priority        integer,
  run_after       timestamptz,
  lease_until     timestamptz,
  error           text,
  created_at      timestamptz,
  updated_at      timestamptz
)
language plpgsql
set search_path = ''
as $$
declare
  v_reclaimed integer;
  v_claimed   integer := 0;
begin
  select count(*) into v_reclaimed from public.reclaim_expired();
  if p_limit > 0 then
    return query
      select v_reclaimed, null::interval, j.id, j.user_id, j.type, j.status, j.payload, j.idempotency_key, j.attempts,
             j.max_attempts, j.priority, j.run_after, j.lease_until, j.error, j.created_at, j.updated_at
        from public.claim_jobs(p_limit, p_types, p_lease, p_room) j;
    get diagnostics v_claimed = row_count;
  end if;
  if v_claimed < p_limit or p_limit = 0 then
    reclaimed := v_reclaimed;
    due_in := public.marian_jobs_next_due(p_types);
    return next;
  end if;
end
$$;

comment on function public.marian_jobs_poll(integer, text[], interval, integer[]) is
  'Internal to workers, a turn in one statement: reclaim_expired, then claim_jobs, each row behind the number reclaimed; and when that filled less than p_limit a last row of nulls, with how long until there is more to do.';

select public.marian_jobs_restrict(
  'public.complete_jobs(uuid[], integer[])',
  'public.marian_jobs_settle(uuid[], integer[])',
  'public.complete_job(uuid, integer)',
  'public.marian_jobs_bounded_error(text)',
  'public.fail_jobs(uuid[], integer[], text[], interval[], boolean[])',
  'public.fail_job(uuid, integer, text, interval, boolean)',
  'public.extend_leases(uuid[], integer[], interval)',
  'public.release_jobs(uuid[], integer[], interval)',
  'public.reclaim_expired(integer)',
  'public.marian_jobs_poll(integer, text[], interval, integer[])');
