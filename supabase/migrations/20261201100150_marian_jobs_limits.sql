-- What an operator sets for a job type: a pause, how many may run at once over all workers, how many may start in a
-- period. A table of its own, a row for each type that has any such setting; most queues have none.

create table public.marian_job_limits (
  type        text primary key,
  paused      boolean not null default false,
  max_running integer,
  rate        integer,
  per         interval,
  started     timestamptz[] not null default '{}',   -- the starts of the last `per`: kept by claims, at most `rate`

  constraint marian_job_limits_type_check check (char_length(type) between 1 and 128 and ltrim(type, E' \t\n\v\f\r') <> ''),
  constraint marian_job_limits_max_running_check check (max_running >= 1),
  constraint marian_job_limits_rate_check check (rate between 1 and 100000),
  constraint marian_job_limits_per_check check ((rate is null) = (per is null) and per > interval '0' and per <= interval '365 days')
);

comment on table public.marian_job_limits is
  'Limits of job types over all workers: pause_type, resume_type and limit_type set them, claims keep them.';

alter table public.marian_job_limits enable row level security;

do $$
declare
  v_role text;
begin
  revoke all on table public.marian_job_limits from public;
  for v_role in select rolname from pg_catalog.pg_roles where rolname in ('anon', 'authenticated', 'service_role') loop
    execute format('revoke all on table public.marian_job_limits from %I', v_role);
  end loop;
  if to_regrole('service_role') is not null then
    grant all on table public.marian_job_limits to service_role;
    create policy marian_job_limits_service on public.marian_job_limits for all to service_role using (true) with check (true);
  end if;
end
$$;

create function public.pause_type(p_type text)
returns void
language sql
set search_path = ''
as $$
  insert into public.marian_job_limits (type, paused) values (p_type, true)
  on conflict (type) do update set paused = true
$$;

comment on function public.pause_type(text) is
  'No job of the type is claimed any more, by any worker; those that run go on.';

create function public.resume_type(p_type text)
returns void
language plpgsql
set search_path = ''
as $$
begin
  update public.marian_job_limits l set paused = false where l.type = p_type;
  perform public.marian_jobs_wake(array[p_type]);
end
$$;

comment on function public.resume_type(text) is
  'Jobs of the type are claimed again.';

create function public.limit_type(
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
  perform public.marian_jobs_wake(array[p_type]);
end
$$;

comment on function public.limit_type(text, integer, integer, interval) is
  'At most p_max_running jobs of the type run at once over all workers, and at most p_rate start within p_per; null: no such limit.';

create function public.marian_jobs_room(p_types text[], p_room integer[], p_now timestamptz)
returns integer[]
language plpgsql
set search_path = ''
as $$
declare
  v_limit public.marian_job_limits;
  v_place integer;
begin
  -- A limited type's row is locked until the claim commits, so that claims of it go one after the other: that makes the
  -- limits exact. In the order of types, so that claims of several cannot deadlock. Unlimited types pay nothing.
  for v_limit in
    select l.* from public.marian_job_limits l
     where l.type = any (p_types) and (l.paused or l.max_running is not null or l.rate is not null)
     order by l.type
       for update
  loop
    v_place := array_position(p_types, v_limit.type);
    if v_limit.paused then
      p_room[v_place] := 0;
      continue;
    end if;
    if v_limit.max_running is not null then
      -- marian_jobs_lease_idx: what runs now. An expired lease holds no capacity.
      p_room[v_place] := least(p_room[v_place], v_limit.max_running - (
        select count(*) from public.marian_jobs j
         where j.status = 'running' and j.lease_until > p_now and j.type = v_limit.type));
    end if;
    if v_limit.rate is not null then
      p_room[v_place] := least(p_room[v_place], v_limit.rate - (
        select count(*) from unnest(v_limit.started) s where s > p_now - v_limit.per));
    end if;
    p_room[v_place] := greatest(p_room[v_place], 0);
  end loop;
  return p_room;
end
$$;

comment on function public.marian_jobs_room(text[], integer[], timestamptz) is
  'Internal to claim_jobs: how many of each type may be claimed now, p_room lessened by the limits, whose rows stay locked.';

create function public.marian_jobs_count_starts(p_type text, p_count integer, p_now timestamptz)
returns void
language sql
set search_path = ''
as $$
  update public.marian_job_limits l
     set started = array(select s from unnest(l.started) s where s > p_now - l.per) || array_fill(p_now, array[p_count])
   where l.type = p_type and l.rate is not null
$$;

comment on function public.marian_jobs_count_starts(text, integer, timestamptz) is
  'Internal to claim_jobs: notes starts of a type that has a rate.';

select public.marian_jobs_restrict(
  'public.pause_type(text)',
  'public.resume_type(text)',
  'public.limit_type(text, integer, integer, interval)',
  'public.marian_jobs_room(text[], integer[], timestamptz)',
  'public.marian_jobs_count_starts(text, integer, timestamptz)');
