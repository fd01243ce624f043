-- What the run knows independently of everybody in it. A trigger writes each move of each job in the very transaction
-- that makes it: what was not committed is not there, what was is. The ledger is the handlers' own.

create schema chaos;

create table chaos.moves (
  seq           bigint generated always as identity primary key,
  at            timestamptz not null default clock_timestamp(),
  job           uuid not null,
  key           text,
  owner         uuid,
  type          text not null,
  old_status    text,
  old_attempts  integer,
  old_max       integer,
  old_lease     timestamptz,
  status        text,
  attempts      integer,
  max_attempts  integer,
  lease_until   timestamptz,
  error         text
);

create table chaos.ledger (
  id      bigint generated always as identity primary key,
  at      timestamptz not null default clock_timestamp(),
  job     uuid not null,
  attempt integer not null,
  what    text not null,
  pid     integer not null
);

-- Written in the transaction that completes the job.
create table chaos.effects (job uuid not null, attempt integer not null);

-- Written in the transaction that enqueues the job.
create table chaos.orders (job uuid not null);

-- What producers say they sent, read from their journals at the end.
create table chaos.sent (
  job    uuid not null,
  fate   text not null,
  answer uuid,
  by     text not null
);

create table chaos.cancels (job uuid not null);

create function chaos.note_move() returns trigger
language plpgsql
security definer
set search_path = ''
as $$
begin
  if tg_op = 'DELETE' then
    insert into chaos.moves (job, key, owner, type, old_status, old_attempts, old_max, old_lease)
    values (old.id, old.idempotency_key, old.user_id, old.type, old.status, old.attempts, old.max_attempts, old.lease_until);
  elsif tg_op = 'INSERT' then
    insert into chaos.moves (job, key, owner, type, status, attempts, max_attempts, lease_until, error)
    values (new.id, new.idempotency_key, new.user_id, new.type, new.status, new.attempts, new.max_attempts, new.lease_until, new.error);
  else
    insert into chaos.moves (job, key, owner, type, old_status, old_attempts, old_max, old_lease,
                             status, attempts, max_attempts, lease_until, error)
    values (new.id, new.idempotency_key, new.user_id, new.type, old.status, old.attempts, old.max_attempts, old.lease_until,
            new.status, new.attempts, new.max_attempts, new.lease_until, new.error);
  end if;
  return null;
end
$$;

create trigger chaos_note_move after insert or update or delete on public.marian_jobs
  for each row execute function chaos.note_move();
