-- The queue: one table, its checks, its four indexes, and who may see what.
-- Runs as Supabase's `postgres` (not a superuser) and on a plain PostgreSQL 15 or later: what belongs to Supabase
-- alone (auth.users, the API roles, the Realtime publication) is tied in where it exists.

create table public.marian_jobs (
  id              uuid primary key default gen_random_uuid(),
  user_id         uuid,
  type            text not null,
  status          text not null default 'queued'
                    constraint marian_jobs_status_check
                    check (status in ('queued', 'running', 'retrying', 'succeeded', 'dead')),
  payload         jsonb not null default '{}'::jsonb,
  idempotency_key text,
  attempts        integer not null default 0,
  max_attempts    integer not null default 3,
  priority        integer not null default 0,
  run_after       timestamptz not null default now(),
  lease_until     timestamptz,
  error           text,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),

  -- Checks run at every move, so "not blank" is a trim and not a regular expression (0.7 of 9 microseconds a row).
  constraint marian_jobs_attempts_check check (attempts >= 0),
  constraint marian_jobs_max_attempts_check check (max_attempts >= 1),
  constraint marian_jobs_type_check check (char_length(type) between 1 and 128 and ltrim(type, E' \t\n\v\f\r') <> ''),
  constraint marian_jobs_idempotency_key_check
    check (idempotency_key is null or (char_length(idempotency_key) between 1 and 512 and ltrim(idempotency_key, E' \t\n\v\f\r') <> '')),
  constraint marian_jobs_payload_check check (jsonb_typeof(payload) = 'object'),
  -- finite, and inside what every client's calendar can hold
  constraint marian_jobs_run_after_check check (run_after >= '0001-01-01 00:00:00+00' and run_after < '10000-01-01 00:00:00+00'),
  constraint marian_jobs_lease_until_check check ((status = 'running') = (lease_until is not null))
);

comment on table public.marian_jobs is
  'Background jobs. Written only through the functions enqueue_job, claim_job, complete_job, fail_job and their like; a signed-in user may read its own rows.';

-- One live job per key; a dead letter frees its key.
create unique index marian_jobs_idem_active_idx
  on public.marian_jobs (idempotency_key)
  where status <> 'dead';

-- Claiming: within a type from the best priority down, within a priority the oldest due first, and the rows that are
-- not due yet stand behind those that are.
create index marian_jobs_claim_idx
  on public.marian_jobs (type, priority desc, run_after, created_at)
  where status in ('queued', 'retrying');

-- Finding expired leases: as large as the number of jobs running now.
create index marian_jobs_lease_idx
  on public.marian_jobs (lease_until)
  where status = 'running';

-- A user's own list, newest first; and the cascade when an account is deleted.
create index marian_jobs_user_idx
  on public.marian_jobs (user_id, created_at desc);

alter table public.marian_jobs set (
  -- Full pages. A move changes `status`, which is in the predicate of three indexes, so no update of this table can be
  -- HOT and room kept free on the page would buy nothing (measured: 50 was no faster than 100, at twice the heap).
  fillfactor = 100,
  -- Every job leaves two dead versions behind, and the claim index is read from exactly the end where they gather.
  -- A default of 20 % would let a table with 5,000,000 finished rows collect 1,000,000 of them; this starts at 5,000
  -- for a small table and at 55,000 for that one.
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_scale_factor = 0.01,
  -- Work at full speed, not in the default's 2 ms naps: a vacuum that is late costs each claim.
  autovacuum_vacuum_cost_delay = 0,
  -- Insert-only stretches (a bulk load) get their visibility map soon, which later vacuums skip by.
  autovacuum_vacuum_insert_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  -- Claims do not depend on statistics; lists and counts do.
  autovacuum_analyze_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.05
);

alter table public.marian_jobs enable row level security;

do $$
declare
  v_role text;
begin
  -- The account owns its jobs: they go when it goes.
  if to_regclass('auth.users') is not null then
    alter table public.marian_jobs
      add constraint marian_jobs_user_id_fkey foreign key (user_id) references auth.users (id) on delete cascade;
  end if;

  -- Projects differ in what new tables are granted by default (before 2026 everything, since then nothing): take all
  -- back by name, then give exactly what is meant.
  revoke all on table public.marian_jobs from public;
  for v_role in select rolname from pg_catalog.pg_roles where rolname in ('anon', 'authenticated', 'service_role') loop
    execute format('revoke all on table public.marian_jobs from %I', v_role);
    execute format('grant %s on table public.marian_jobs to %I',
                   case v_role when 'service_role' then 'all' else 'select' end, v_role);
  end loop;

  -- anon may ask and gets no rows: no policy names it. The sub-select makes auth.uid() run once per query.
  if to_regrole('authenticated') is not null and to_regprocedure('auth.uid()') is not null then
    create policy marian_jobs_select_own on public.marian_jobs
      for select to authenticated
      using (user_id = (select auth.uid()));
  end if;

  -- Realtime, where the project has it.
  if exists (select from pg_catalog.pg_publication where pubname = 'supabase_realtime' and not puballtables) then
    begin
      alter publication supabase_realtime add table public.marian_jobs;
    exception
      when insufficient_privilege then
        raise notice 'marian_jobs: the publication supabase_realtime belongs to another role; add the table there for live updates';
      when duplicate_object then
        null; -- a publication of the whole schema already carries it
    end;
  end if;
end
$$;
