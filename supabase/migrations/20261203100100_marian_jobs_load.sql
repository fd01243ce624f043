-- Getting many jobs in at once: columns instead of a JSON array, and no answer for what was simply made.

create function public.marian_jobs_load(
  p_ids          uuid[],
  p_types        text[],
  p_payloads     text,                       -- JSON texts without line breaks, one a line
  p_user_ids     uuid[] default null,        -- these: null for nulls all over
  p_keys         text[] default null,
  p_priorities   integer[] default null,
  p_max_attempts integer[] default null,
  p_run_after    timestamptz[] default null,
  p_delays       interval[] default null
)
returns table (
  n               integer,
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
#variable_conflict use_column
declare
  v_now      constant timestamptz := clock_timestamp();
  v_payloads constant text[] := string_to_array(p_payloads, E'\n');
  v_count    constant integer := cardinality(p_ids);
  v_made     integer := -1;
  v_known    uuid[];   -- per job: the id of its row
  v_again    boolean;
begin
  if v_count is null or cardinality(p_types) is distinct from v_count or cardinality(v_payloads) is distinct from v_count
     or cardinality(p_user_ids) <> v_count or cardinality(p_keys) <> v_count or cardinality(p_priorities) <> v_count
     or cardinality(p_max_attempts) <> v_count or cardinality(p_run_after) <> v_count or cardinality(p_delays) <> v_count
     or array_position(p_ids, null) is not null then
    raise exception using errcode = 'MJ400', message = 'marian_jobs_load: all arrays must be of one length, and every job must have an id';
  end if;

  loop
    begin
      if p_keys is null and v_made < 0 then
        -- Nothing that could meet another row, unless the call is sent again: a plain insert, at two thirds of the cost.
        insert into public.marian_jobs
          (id, user_id, type, payload, priority, max_attempts, run_after, created_at, updated_at)
        select r.id, r.user_id, r.type, r.payload::jsonb, coalesce(r.priority, 0), coalesce(r.max_attempts, 3),
               coalesce(r.run_after, v_now + r.delay, v_now), v_now + r.n * interval '1 microsecond', v_now
          from unnest(p_ids, p_types, v_payloads, p_user_ids, p_priorities, p_max_attempts, p_run_after, p_delays)
               with ordinality as r(id, type, payload, user_id, priority, max_attempts, run_after, delay, n);
      else
        -- In the order of the keys, so that two loads with overlapping keys wait for each other instead of deadlocking;
        -- made a microsecond apart, so that jobs due together run in the order they were given.
        insert into public.marian_jobs
          (id, user_id, type, payload, idempotency_key, priority, max_attempts, run_after, created_at, updated_at)
        select r.id, r.user_id, r.type, r.payload::jsonb, r.key, coalesce(r.priority, 0), coalesce(r.max_attempts, 3),
               coalesce(r.run_after, v_now + r.delay, v_now), v_now + r.n * interval '1 microsecond', v_now
          from unnest(p_ids, p_types, v_payloads, p_user_ids, p_keys, p_priorities, p_max_attempts, p_run_after, p_delays)
               with ordinality as r(id, type, payload, user_id, key, priority, max_attempts, run_after, delay, n)
         order by r.key, r.n
        on conflict do nothing;
      end if;
      get diagnostics v_made = row_count;
    exception
      when unique_violation then
        v_made := 0;   -- again, the other way
        continue;
      when serialization_failure then
        raise exception using errcode = 'MJ425',
          message = 'enqueue_jobs: a job with this key or id was made after this transaction''s snapshot was taken',
          hint = 'Enqueue from a READ COMMITTED transaction, or start the transaction anew.';
    end;
    exit when v_made = v_count;

    -- Around again only when a row in the way went dead or was pruned between the two statements.
    select array_agg(coalesce(by_id.id, by_key.id) order by r.n), bool_or(coalesce(by_id.id, by_key.id) is null)
      into v_known, v_again
      from unnest(p_ids, p_keys) with ordinality as r(id, key, n)
      left join public.marian_jobs by_id on by_id.id = r.id
      left join public.marian_jobs by_key
        on by_id.id is null and by_key.idempotency_key = r.key and by_key.status <> 'dead';
    exit when not v_again;
  end loop;

  if exists (
    select from unnest(p_ids, p_types, p_user_ids, p_keys) with ordinality as r(id, type, user_id, key, n)
      join public.marian_jobs j on j.id = v_known[r.n]
     where j.user_id is distinct from r.user_id
        or (j.id = r.id and (j.type, j.idempotency_key) is distinct from (r.type, r.key))
  ) then
    raise exception using errcode = 'MJ409', message = 'enqueue_jobs: an idempotency key or id belongs to another owner or job',
      hint = 'Prefix idempotency keys with the owner. Nothing was enqueued.';
  end if;

  perform public.marian_jobs_wake(array(select distinct t from unnest(p_types) t));

  n := 0;
  created_at := v_now;
  return next;
  return query
    select k.n::integer, j.id, j.user_id, j.type, j.status, j.payload, j.idempotency_key, j.attempts, j.max_attempts,
           j.priority, j.run_after, j.lease_until, j.error, j.created_at, j.updated_at
      from unnest(v_known) with ordinality as k(id, n)
      join public.marian_jobs j on j.id = k.id
     where not (j.id = p_ids[k.n] and j.updated_at = v_now and j.created_at = v_now + k.n * interval '1 microsecond')
     order by k.n;
end
$$;

comment on function public.marian_jobs_load(uuid[], text[], text, uuid[], text[], integer[], integer[], timestamptz[], interval[]) is
  'Internal to clients: enqueue_jobs by columns. Returns a row n = 0 whose created_at is the moment of the call (job n was made n microseconds later), then, for each job that met a row, its number and that row.';

select public.marian_jobs_restrict(
  'public.marian_jobs_load(uuid[], text[], text, uuid[], text[], integer[], integer[], timestamptz[], interval[])');

notify pgrst, 'reload schema';
