-- Claiming.
--
-- The shape. For one type the claim index (type, priority desc, run_after, created_at) is a stream of waiting rows in
-- exactly the order of the contract: best priority, then oldest due, then oldest made; inside a priority the rows that
-- are not due yet stand behind those that are. A claim of several types merges their streams, as one merges sorted
-- files: look at the head of each stream, take from the best one a run of rows up to the runner-up's head, look again.
--
--   marian_jobs_claim_head reads one row per (type, priority) it passes: the claim index, entered at a known place
--               (`type = … and priority < …`, or behind a row), so neither future rows nor foreign types nor finished
--               history are ever walked.
--   claim_jobs locks and updates one run: the claim index again, bounded on both sides, then the rows by their place
--               in the heap. It locks what it returns and nothing else; rows that a rival has locked are skipped.
--
-- Why procedural. Each statement has one sensible plan, an ordered scan of the claim index, and the settings on the
-- functions rule the others out, so that no statistics, however stale, and no cached plan can choose a sort or a table
-- scan. One statement over all types and priorities was measured to flip between plans of 26 and of 4,135 buffers.

create function public.marian_jobs_claim_head(
  p_type             text,
  p_now              timestamptz,
  inout o_priority   integer default null,
  inout o_run_after  timestamptz default null,
  inout o_created_at timestamptz default null
)
language plpgsql
set search_path = ''
as $$
declare
  v_below bigint := 2147483648; -- above every priority
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

  -- Else the best priority below that has a row due. Its first row is its oldest: when that is not due, none is.
  v_below := coalesce(o_priority, v_below);
  loop
    select j.priority, j.run_after, j.created_at into o_priority, o_run_after, o_created_at
      from public.marian_jobs j
     where j.type = p_type and j.status in ('queued', 'retrying') and j.priority < v_below
     order by j.priority desc, j.run_after, j.created_at
     limit 1;
    exit when not found or o_run_after <= p_now;
    v_below := o_priority;
  end loop;
end
$$;

comment on function public.marian_jobs_claim_head(text, timestamptz, integer, timestamptz, timestamptz) is
  'Internal to claim_jobs: where the next due row of a type stands in claim order, from the start or behind a given place; nulls when there is none. Reads one row per priority it passes.';

create function public.marian_jobs_waiting_types()
returns text[]
language sql
stable
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
  -- From type to type by the claim index, one row read for each.
  with recursive t(type) as (
    (select j.type from public.marian_jobs j where j.status in ('queued', 'retrying') order by j.type limit 1)
    union all
    select (select j.type from public.marian_jobs j
             where j.status in ('queued', 'retrying') and j.type > t.type order by j.type limit 1)
      from t where t.type is not null
  )
  select coalesce(array_agg(t.type), '{}') from t where t.type is not null
$$;

comment on function public.marian_jobs_waiting_types() is
  'The types that have waiting rows, due or not. Reads one index entry per type.';

create function public.claim_jobs(
  p_limit integer,
  p_types text[] default null,
  p_lease interval default '30 seconds',
  p_room  integer[] default null
)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_indexscan = on
set enable_tidscan = on
as $$
declare
  v_now        constant timestamptz := clock_timestamp();
  v_types      text[];
  v_room       integer[];       -- how many of each type may still be claimed
  v_limited    boolean := exists (select from public.marian_job_limits);
  v_priorities integer[];       -- the head of each type's stream; null when the stream is at its end
  v_due        timestamptz[];
  v_made       timestamptz[];
  v_head       record;
  v_left       integer := p_limit;
  v_best       integer;
  v_next_due   timestamptz;     -- the runner-up's head: how far the best stream may run
  v_next_made  timestamptz;
  v_run        tid[];
  v_claimed    integer;
begin
  if p_limit is null or p_limit not between 1 and 1000 then
    raise exception using errcode = 'MJ400', message = 'claim_jobs: p_limit must be between 1 and 1000',
      hint = 'An API answers at most 1000 rows, and a claim whose answer is cut would lose jobs until their leases end.';
  end if;
  perform public.marian_jobs_check_lease('claim_jobs', p_lease);
  perform public.marian_jobs_check_isolation('claim_jobs');

  select array_agg(w.type), array_agg(w.room) into v_types, v_room
    from (select t.type, coalesce(min(t.room), p_limit) as room
            from unnest(coalesce(p_types, public.marian_jobs_waiting_types()), p_room) as t(type, room)
           where t.type is not null
           group by t.type) w;
  if v_limited then
    v_room := public.marian_jobs_room(v_types, v_room, v_now);
  end if;

  for i in 1 .. coalesce(cardinality(v_types), 0) loop
    continue when v_room[i] <= 0;
    v_head := public.marian_jobs_claim_head(v_types[i], v_now);
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
    v_run := array(
      select j.ctid
        from public.marian_jobs j
       where j.type = v_types[v_best] and j.status in ('queued', 'retrying') and j.priority = v_priorities[v_best]
         and (j.run_after, j.created_at) >= (v_due[v_best], v_made[v_best])
         and (j.run_after, j.created_at) <= (v_next_due, v_next_made)
         and j.attempts < 2147483647
       order by j.run_after, j.created_at
       limit least(v_left, v_room[v_best])
         for update skip locked);

    return query
      with claimed as (
        update public.marian_jobs j
           set status = 'running', attempts = j.attempts + 1, lease_until = v_now + p_lease, updated_at = v_now
         where j.ctid = any (v_run)
        returning j.*
      )
      select * from claimed c order by c.run_after, c.created_at;
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

    -- Whatever stands before the runner-up is now ours or a rival's: on to what is behind it.
    v_head := public.marian_jobs_claim_head(v_types[v_best], v_now, v_priorities[v_best], v_next_due, v_next_made);
    v_priorities[v_best] := v_head.o_priority;
    v_due[v_best] := v_head.o_run_after;
    v_made[v_best] := v_head.o_created_at;
  end loop;
end
$$;

comment on function public.claim_jobs(integer, text[], interval, integer[]) is
  'Leases up to p_limit due jobs of the given types (null: any) and returns them in claim order: highest priority, then oldest due, then oldest made. Each becomes running with attempts + 1. Never waits for another claimer (but for one of a type that has a limit), locks only what it returns. p_room bounds each of p_types by itself.';

create function public.claim_job(
  p_types text[] default null,
  p_lease interval default '30 seconds'
)
returns setof public.marian_jobs
language sql
set search_path = ''
as $$
  select j.* from public.claim_jobs(1, p_types, p_lease) j
$$;

comment on function public.claim_job(text[], interval) is
  'Leases the one job that is next for the given types (null: any) and returns it, or no row. See claim_jobs.';

create function public.marian_jobs_next_due(p_types text[] default null)
returns interval
language plpgsql
set search_path = ''
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
  v_type     text;
  v_priority bigint;
  v_level    integer;
  v_due      timestamptz;
  v_next     timestamptz;
begin
  -- marian_jobs_lease_idx: a lease that ends is work too.
  select j.lease_until into v_next from public.marian_jobs j where j.status = 'running' order by j.lease_until limit 1;

  -- marian_jobs_claim_idx: the first row of each (type, priority).
  foreach v_type in array coalesce(p_types, public.marian_jobs_waiting_types()) loop
    v_priority := 2147483648;
    loop
      select j.priority, j.run_after into v_level, v_due
        from public.marian_jobs j
       where j.type = v_type and j.status in ('queued', 'retrying') and j.priority < v_priority
       order by j.priority desc, j.run_after, j.created_at
       limit 1;
      exit when not found;
      v_priority := v_level;
      -- A limit may keep what is due from being claimed: come again soon, not at once.
      if v_due <= clock_timestamp() and exists (select from public.marian_job_limits l where l.type = v_type) then
        v_due := clock_timestamp() + interval '0.5 seconds';
      end if;
      v_next := least(v_next, v_due);
    end loop;
  end loop;

  return case when v_next is not null then greatest(v_next - clock_timestamp(), interval '0') end;
end
$$;

comment on function public.marian_jobs_next_due(text[]) is
  'How long until a job of these types is due or any lease ends, by the database''s clock; zero when one is, null when nothing is foreseen.';

select public.marian_jobs_restrict(
  'public.marian_jobs_claim_head(text, timestamptz, integer, timestamptz, timestamptz)',
  'public.marian_jobs_waiting_types()',
  'public.claim_jobs(integer, text[], interval, integer[])',
  'public.claim_job(text[], interval)',
  'public.marian_jobs_next_due(text[])');
