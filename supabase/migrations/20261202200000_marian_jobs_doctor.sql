-- What an operator reads: the limits that hold and how much of them is used, and the figures `marian doctor` judges.

create function public.job_limits()
returns table (
  type        text,
  paused      boolean,
  max_running integer,
  rate        integer,
  per         interval,
  running     bigint,
  started     bigint
)
language sql
stable
set search_path = ''
as $$
  -- marian_jobs_lease_idx, once for all types.
  with running as (
    select j.type, count(*) as count
      from public.marian_jobs j
     where j.status = 'running' and j.lease_until > statement_timestamp()
     group by j.type
  )
  select l.type, l.paused, l.max_running, l.rate, l.per, coalesce(r.count, 0),
         (select count(*) from unnest(l.started) s where s > statement_timestamp() - l.per)
    from public.marian_job_limits l
    left join running r on r.type = l.type
   where l.paused or l.max_running is not null or l.rate is not null
   order by l.type collate "C"
$$;

comment on function public.job_limits() is
  'The types that are paused or limited: what bounds each, how many run now, how many started within its period (0 where it has no rate).';

-- A row that bounds nothing goes: while it stands, each claim of its type waits for it, and its due jobs are looked for
-- twice a second.
create or replace function public.resume_type(p_type text)
returns void
language plpgsql
set search_path = ''
as $$
begin
  update public.marian_job_limits l set paused = false where l.type = p_type;
  delete from public.marian_job_limits l where l.type = p_type and not l.paused and l.max_running is null and l.rate is null;
  perform public.marian_jobs_wake(array[p_type]);
end
$$;

create or replace function public.limit_type(
  p_type        text,
  p_max_running integer default null,
  p_rate        integer default null,
  p_per         interval default null
)
returns void
language plpgsql
set search_path = ''
as $$
begin
  insert into public.marian_job_limits (type, max_running, rate, per) values (p_type, p_max_running, p_rate, p_per)
  on conflict (type) do update
    set max_running = excluded.max_running, rate = excluded.rate, per = excluded.per,
        started = case when excluded.rate is null then '{}' else marian_job_limits.started end;
  delete from public.marian_job_limits l where l.type = p_type and not l.paused and l.max_running is null and l.rate is null;
  perform public.marian_jobs_wake(array[p_type]);
end
$$;

create function public.marian_jobs_figures(p_recent interval default '1 hour')
returns table (
  measured_at        timestamptz,
  type               text,
  due                bigint,
  oldest_due_age     interval,
  running            bigint,
  expired_leases     bigint,
  oldest_expired_age interval,
  last_worked_age    interval,
  succeeded_recently bigint,
  dead_recently      bigint,
  oldest_age         interval
)
language sql
stable
set search_path = ''
as $$
  select statement_timestamp(), j.type,
         count(*) filter (where j.status in ('queued', 'retrying') and j.run_after <= statement_timestamp()),
         statement_timestamp() - min(j.run_after) filter (
           where j.status in ('queued', 'retrying') and j.run_after <= statement_timestamp()),
         count(*) filter (where j.status = 'running' and j.lease_until > statement_timestamp()),
         count(*) filter (where j.status = 'running' and j.lease_until <= statement_timestamp()),
         statement_timestamp() - min(j.lease_until) filter (
           where j.status = 'running' and j.lease_until <= statement_timestamp()),
         statement_timestamp() - max(j.updated_at) filter (where j.attempts > 0),
         count(*) filter (where j.status = 'succeeded' and j.updated_at > statement_timestamp() - p_recent),
         count(*) filter (
           where j.status = 'dead' and j.error is distinct from 'cancelled' and j.updated_at > statement_timestamp() - p_recent),
         statement_timestamp() - min(j.created_at)
    from public.marian_jobs j
   group by grouping sets ((j.type), ())
   order by j.type collate "C" nulls first
$$;

comment on function public.marian_jobs_figures(interval) is
  'For marian doctor, a row per type behind one over all (type null, also for an empty table): due jobs and how long the oldest has waited, live and expired leases, how long ago a worker last moved a job, how many succeeded and died (not by cancel) within p_recent. Reads the whole table.';

select public.marian_jobs_restrict(
  'public.job_limits()',
  'public.marian_jobs_figures(interval)');

notify pgrst, 'reload schema';
