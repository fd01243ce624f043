-- Claims and reports at less cost, in the same order and with the same answers.
--
--   plans    Each statement here has one sensible plan, and the settings of its function rule the others out. So it is
--            planned once a session (plan_cache_mode): planning anew took a quarter of a claim of one job.
--   floors   A worker that claims batch after batch says where its last ones ended. Index entries of claimed rows stay
--            until a vacuum may remove them, which an old snapshot forbids: without floors a claim walks over all of
--            them (24,000 jobs a second became 1,500 within 90 s). Rows below a floor, which can only be late ones, are
--            met by the next claim without floors; a worker makes one each second.
--   order    Rows leave claims in the order of the table, and are sorted where the order counts, once.

-- marian_jobs_claim_head, which marian_jobs_claim_from replaces, stays until a later version: claims that run at this
-- moment call it.

create function public.marian_jobs_claim_from(
  p_type             text,
  p_now              timestamptz,
  p_floors           integer[],      -- priorities of the type that have a floor, the best first
  p_floors_due       timestamptz[],
  p_floors_made      timestamptz[],
  inout o_priority   integer default null,
  inout o_run_after  timestamptz default null,
  inout o_created_at timestamptz default null
)
language plpgsql
set search_path = ''
as $$
declare
  v_below bigint := coalesce(o_priority, 2147483648); -- above every priority
  v_floor integer;
begin
  -- Behind a given row, inside its priority (marian_jobs_claim_idx, all four columns).
  if o_run_after is not null then
    select j.run_after, j.created_at into o_run_after, o_created_at
      from public.marian_jobs j
     where j.type = p_type and j.status in ('queued', 'retrying') and j.priority = o_priority
       and (j.run_after, j.created_at) > (o_run_after, o_created_at) and j.run_after <= p_now
     order by j.run_after, j.created_at
     limit 1;
    if found then
      return;
    end if;
  end if;

  for i in 1 .. coalesce(cardinality(p_floors), 0) + 1 loop
    v_floor := p_floors[i];   -- null behind the last
    continue when v_floor >= v_below;

    -- The best priority between the floors that has a row due. Its first row is its oldest: when that is not due, none is.
    loop
      select j.priority, j.run_after, j.created_at into o_priority, o_run_after, o_created_at
        from public.marian_jobs j
       where j.type = p_type and j.status in ('queued', 'retrying')
         and j.priority < v_below and j.priority > coalesce(v_floor, -2147483649)
       order by j.priority desc, j.run_after, j.created_at
       limit 1;
      exit when not found;
      if o_run_after <= p_now then
        return;
      end if;
      v_below := o_priority;
    end loop;
    exit when v_floor is null;

    -- A priority with a floor: from there on.
    select j.priority, j.run_after, j.created_at into o_priority, o_run_after, o_created_at
      from public.marian_jobs j
     where j.type = p_type and j.status in ('queued', 'retrying') and j.priority = v_floor
       and (j.run_after, j.created_at) >= (p_floors_due[i], p_floors_made[i]) and j.run_after <= p_now
     order by j.run_after, j.created_at
     limit 1;
    if found then
      return;
    end if;
    v_below := v_floor;
  end loop;
end
$$;

comment on function public.marian_jobs_claim_from(text, timestamptz, integer[], timestamptz[], timestamptz[], integer, timestamptz, timestamptz) is
  'Internal to claims: where the next due row of a type stands in claim order, from the start or behind a given place, not looking below the floors; nulls when there is none. Reads one row per priority it passes.';

create function public.marian_jobs_take(
  p_limit       integer,
  p_types       text[],
  p_lease       interval,
  p_room        integer[] default null,
  p_floor_types text[] default null,
  p_floors      integer[] default null,
  p_floors_due  timestamptz[] default null,
  p_floors_made timestamptz[] default null
)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_indexscan = on
set enable_tidscan = on
as $$
declare
  v_now        timestamptz := clock_timestamp();
  v_types      text[];
  v_room       integer[];       -- how many of each type may still be claimed
  v_limited    boolean := exists (select from public.marian_job_limits);
  v_first      integer[];       -- of each type: its floors are p_floors[v_first[i] : v_last[i]]
  v_last       integer[];
  v_priorities integer[];       -- the head of each type's stream; null when the stream is at its end
  v_due        timestamptz[];
  v_made       timestamptz[];
  v_head       record;
  v_left       integer := p_limit;
  v_best       integer;
  v_wanted     integer;
  v_next_due   timestamptz;     -- the runner-up's head: how far the best stream may run
  v_next_made  timestamptz;
  v_run        tid[];
  v_claimed    integer;
begin
  if p_limit is null or p_limit not between 1 and 1000 then
    raise exception using errcode = 'MJ400', message = 'claim_jobs: p_limit must be between 1 and 1000',
      hint = 'An API answers at most 1000 rows, and a claim whose answer is cut would lose jobs until their leases end.';
  end if;
  if p_lease is null or p_lease <= interval '0' or p_lease > interval '365 days' then
    perform public.marian_jobs_check_lease('claim_jobs', p_lease);
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform public.marian_jobs_check_isolation('claim_jobs');
  end if;

  if cardinality(p_types) = 1 then
    v_types := p_types;
    v_room := array[coalesce(p_room[1], p_limit)];
  else
    select array_agg(w.type), array_agg(w.room) into v_types, v_room
      from (select t.type, coalesce(min(t.room), p_limit) as room
              from unnest(coalesce(p_types, public.marian_jobs_waiting_types()), p_room) as t(type, room)
             where t.type is not null
             group by t.type) w;
  end if;
  if v_limited then
    v_room := public.marian_jobs_room(v_types, v_room, v_now);
    v_now := clock_timestamp();   -- the locks may have taken a while, and this is when the jobs start
  end if;

  for i in 1 .. coalesce(cardinality(v_types), 0) loop
    continue when v_room[i] <= 0;
    v_first[i] := coalesce(array_position(p_floor_types, v_types[i]), 1);
    v_last[i] := v_first[i] - 1;
    while p_floor_types[v_last[i] + 1] = v_types[i] loop
      v_last[i] := v_last[i] + 1;
    end loop;
    v_head := public.marian_jobs_claim_from(v_types[i], v_now,
      p_floors[v_first[i] : v_last[i]], p_floors_due[v_first[i] : v_last[i]], p_floors_made[v_first[i] : v_last[i]]);
    v_priorities[i] := v_head.o_priority;
    v_due[i] := v_head.o_run_after;
    v_made[i] := v_head.o_created_at;
  end loop;

  while v_left > 0 loop
    v_best := null;
    for i in 1 .. coalesce(cardinality(v_types), 0) loop
      continue when v_priorities[i] is null;
      if v_best is null
         or (-v_priorities[i]::bigint, v_due[i], v_made[i]) < (-v_priorities[v_best]::bigint, v_due[v_best], v_made[v_best]) then
        v_best := i;
      end if;
    end loop;
    exit when v_best is null;

    v_next_due := v_now;
    v_next_made := 'infinity';
    for i in 1 .. cardinality(v_types) loop
      if i <> v_best and v_priorities[i] = v_priorities[v_best] and (v_due[i], v_made[i]) < (v_next_due, v_next_made) then
        v_next_due := v_due[i];
        v_next_made := v_made[i];
      end if;
    end loop;

    -- marian_jobs_claim_idx from the head to the runner-up's; the limit stands above the locking, so that a locked row
    -- is a returned row.
    v_wanted := least(v_left, v_room[v_best]);
    v_run := array(
      select j.ctid
        from public.marian_jobs j
       where j.type = v_types[v_best] and j.status in ('queued', 'retrying') and j.priority = v_priorities[v_best]
         and (j.run_after, j.created_at) >= (v_due[v_best], v_made[v_best])
         and (j.run_after, j.created_at) <= (v_next_due, v_next_made)
         and j.attempts < 2147483647
       order by j.run_after, j.created_at
       limit v_wanted
         for update skip locked);

    return query
      update public.marian_jobs j
         set status = 'running', attempts = j.attempts + 1, lease_until = v_now + p_lease, updated_at = v_now
       where j.ctid = any (v_run)
      returning j.*;
    get diagnostics v_claimed = row_count;
    v_left := v_left - v_claimed;
    v_room[v_best] := v_room[v_best] - v_claimed;
    if v_limited and v_claimed > 0 then
      perform public.marian_jobs_count_starts(v_types[v_best], v_claimed, v_now);
    end if;
    exit when v_left = 0;
    if v_room[v_best] = 0 then
      v_priorities[v_best] := null;
      continue;
    end if;

    -- Whatever stands before the runner-up is now ours or a rival's: on to what is behind it, which without a runner-up
    -- is the next priority.
    v_head := public.marian_jobs_claim_from(v_types[v_best], v_now,
      p_floors[v_first[v_best] : v_last[v_best]], p_floors_due[v_first[v_best] : v_last[v_best]],
      p_floors_made[v_first[v_best] : v_last[v_best]], v_priorities[v_best],
      case when v_next_made < 'infinity' then v_next_due end, v_next_made);
    v_priorities[v_best] := v_head.o_priority;
    v_due[v_best] := v_head.o_run_after;
    v_made[v_best] := v_head.o_created_at;
  end loop;
end
$$;

comment on function public.marian_jobs_take(integer, text[], interval, integer[], text[], integer[], timestamptz[], timestamptz[]) is
  'Internal to claims: claim_jobs whose rows come in no order. p_floors with the three beside it, sorted by type and then by priority, best first: for a (type, priority) where to begin.';

create or replace function public.claim_jobs(
  p_limit integer,
  p_types text[] default null,
  p_lease interval default '30 seconds',
  p_room  integer[] default null
)
returns setof public.marian_jobs
language sql
set search_path = ''
as $$
  select j.* from public.marian_jobs_take(p_limit, p_types, p_lease, p_room) j
   order by j.priority desc, j.run_after, j.created_at
$$;

create or replace function public.claim_job(
  p_types text[] default null,
  p_lease interval default '30 seconds'
)
returns setof public.marian_jobs
language sql
set search_path = ''
as $$
  select j.* from public.marian_jobs_take(1, p_types, p_lease) j
$$;

alter function public.marian_jobs_next_due(text[]) set plan_cache_mode = force_generic_plan;
alter function public.complete_jobs(uuid[], integer[]) set plan_cache_mode = force_generic_plan;
alter function public.fail_jobs(uuid[], integer[], text[], interval[], boolean[]) set plan_cache_mode = force_generic_plan;
alter function public.extend_leases(uuid[], integer[], interval) set plan_cache_mode = force_generic_plan;
alter function public.release_jobs(uuid[], integer[], interval) set plan_cache_mode = force_generic_plan;

create or replace function public.marian_jobs_settle(p_ids uuid[], p_attempts integer[])
returns table (id uuid, attempt integer)
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
declare
  v_now     constant timestamptz := clock_timestamp();
  v_attempt constant integer := p_attempts[1];
  v_count   integer;
begin
  perform public.marian_jobs_check_held('complete_jobs', p_ids, p_attempts);
  if current_setting('transaction_isolation') <> 'read committed' then
    perform public.marian_jobs_check_isolation('complete_jobs');
  end if;
  -- Both ways take the rows in the order of their ids.
  if v_attempt = all (p_attempts) then
    -- Mostly all are first attempts: one walk of the primary key along the sorted ids, without a join.
    update public.marian_jobs j
       set status = 'succeeded', lease_until = null, error = null, updated_at = v_now
     where j.id = any (p_ids) and j.attempts = v_attempt and j.lease_until is not null;
  else
    update public.marian_jobs j
       set status = 'succeeded', lease_until = null, error = null, updated_at = v_now
      from (select h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt) order by 1) h
     where j.id = h.id and j.attempts = h.attempt and j.lease_until is not null;
  end if;
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

create or replace function public.reclaim_expired(p_limit integer default 1000)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set plan_cache_mode = force_generic_plan
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
  if current_setting('transaction_isolation') <> 'read committed' then
    perform public.marian_jobs_check_isolation('reclaim_expired');
  end if;
  -- marian_jobs_lease_idx; a row that its worker is completing at this moment is skipped, and rightly so.
  v_expired := array(
    select j.ctid
      from public.marian_jobs j
     where j.status = 'running' and j.lease_until <= v_now
     order by j.lease_until
     limit p_limit
       for update skip locked);
  if cardinality(v_expired) = 0 then
    return;
  end if;
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

create or replace function public.marian_jobs_poll(
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
        from public.marian_jobs_take(p_limit, p_types, p_lease, p_room) j
       order by j.priority desc, j.run_after, j.created_at;
    get diagnostics v_claimed = row_count;
  end if;
  if v_claimed < p_limit or p_limit = 0 then
    reclaimed := v_reclaimed;
    due_in := public.marian_jobs_next_due(p_types);
    return next;
  end if;
end
$$;

select public.marian_jobs_restrict(
  'public.marian_jobs_claim_from(text, timestamptz, integer[], timestamptz[], timestamptz[], integer, timestamptz, timestamptz)',
  'public.marian_jobs_take(integer, text[], interval, integer[], text[], integer[], timestamptz[], timestamptz[])');

notify pgrst, 'reload schema';
