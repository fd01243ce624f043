-- Limits to the last start, however long claims wait for each other. A claim took the time before it waited for the row
-- of a limited type: its lease began in the past, perhaps was over when it was granted, and the starts that a rate counts
-- were noted, and forgotten, by clocks that did not stand in the order of the claims. Now the time is taken once the
-- rows are locked.

create or replace function public.marian_jobs_room(p_types text[], p_room integer[], p_now timestamptz)
returns integer[]
language plpgsql
set search_path = ''
as $$
declare
  v_limit public.marian_job_limits;
  v_place integer;
  v_now   timestamptz;
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
    v_now := clock_timestamp();   -- by now the row is ours; p_now may be from before the wait for it
    if v_limit.paused then
      p_room[v_place] := 0;
      continue;
    end if;
    if v_limit.max_running is not null then
      -- marian_jobs_lease_idx: what runs now. An expired lease holds no capacity.
      p_room[v_place] := least(p_room[v_place], v_limit.max_running - (
        select count(*) from public.marian_jobs j
         where j.status = 'running' and j.lease_until > v_now and j.type = v_limit.type));
    end if;
    if v_limit.rate is not null then
      p_room[v_place] := least(p_room[v_place], v_limit.rate - (
        select count(*) from unnest(v_limit.started) s where s > v_now - v_limit.per));
    end if;
    p_room[v_place] := greatest(p_room[v_place], 0);
  end loop;
  return p_room;
end
$$;

create or replace function public.claim_jobs(
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
  v_now        timestamptz := clock_timestamp();
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
    v_now := clock_timestamp();   -- the locks may have taken a while, and this is when the jobs start
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
