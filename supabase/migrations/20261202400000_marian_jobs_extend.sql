-- One locked row must not cost all others their leases. A handler that completes its job in its own transaction holds the
-- row until it commits; over a network that hangs that may be longer than a lease. The extension of that row waited, and
-- with it that of every other run of the worker: their leases ran out, and they were started again elsewhere; and the
-- leases set at last were counted from before the wait. Now a locked row is passed by, and the time is taken afterwards.

create or replace function public.extend_leases(
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
  v_now  timestamptz;
  v_free uuid[];
begin
  perform public.marian_jobs_check_held('extend_leases', p_ids, p_attempts);
  perform public.marian_jobs_check_lease('extend_leases', p_lease);
  perform public.marian_jobs_check_isolation('extend_leases');
  v_free := array(
    select j.id
      from (select distinct h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt) order by 1, 2) h
      join public.marian_jobs j on j.id = h.id
     where j.attempts = h.attempt and j.lease_until is not null
       for no key update of j skip locked);
  v_now := clock_timestamp();
  return query
    update public.marian_jobs j
       set lease_until = v_now + p_lease, updated_at = v_now
     where j.id = any (v_free)
    returning j.id;

  -- Whoever locks a row is moving it, and nobody reclaims it meanwhile: held, until that is committed.
  return query
    select j.id
      from (select distinct h.id, h.attempt from unnest(p_ids, p_attempts) as h(id, attempt)) h
     cross join lateral (select k.* from public.marian_jobs k where k.id = h.id offset 0) j
     where j.attempts = h.attempt and j.lease_until is not null and j.id <> all (v_free);
end
$$;

comment on function public.extend_leases(uuid[], integer[], interval) is
  'Extends leases to now + p_lease and returns the ids still held; an id left out was cancelled, reclaimed or finished, and its handler should stop. Never waits: a row that is locked, so being moved at this moment, counts as held and keeps the lease it has.';
