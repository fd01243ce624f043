-- Jobs of schedules, made by SQL: for pg_cron, or whatever else calls at the right time.
--
-- A slot is one moment at which a schedule is due. Its job's key is made of the schedule's name and the slot, and its id
-- of the key and the slot, bit by bit as marian_jobs/cron.py makes them: pg_cron and any number of Python workers may
-- make the jobs of one schedule side by side, and each slot has one.

create function public.marian_jobs_slot_id(p_key text, p_slot timestamptz)
returns uuid
language plpgsql
immutable
set search_path = ''
as $$
declare
  v_millis constant bit(48) := (extract(epoch from p_slot) * 1000)::bigint::bit(48);
  v_digest constant bit(80) := ('x' || encode(substr(sha256(convert_to(p_key, 'UTF8')), 1, 10), 'hex'))::bit(80);
  v_id     bit(128);
begin
  -- A UUID of version 8 (RFC 9562): time first, then the version, 12 bits of the key, the variant, 62 bits of the key.
  v_id := v_millis || b'1000' || substring(v_digest from 7 for 12) || b'10' || substring(v_digest from 19 for 62);
  return (lpad(to_hex(substring(v_id from 1 for 64)::bigint), 16, '0')
       || lpad(to_hex(substring(v_id from 65 for 64)::bigint), 16, '0'))::uuid;
end
$$;

comment on function public.marian_jobs_slot_id(text, timestamptz) is
  'Internal to enqueue_slot: the id of the job that has this key and is made for this slot, the same as Python''s.';

create function public.enqueue_slot(
  p_name         text,
  p_type         text,
  p_slot         timestamptz default null,
  p_payload      jsonb default '{}',
  p_user_id      uuid default null,
  p_priority     integer default 0,
  p_max_attempts integer default 3
)
returns setof public.marian_jobs
language plpgsql
set search_path = ''
as $$
declare
  v_slot constant timestamptz := coalesce(p_slot, date_trunc('minute', now()));
  v_key  text;
begin
  if p_name is null or ltrim(p_name, E' \t\n\v\f\r') = '' or char_length(p_name) > 128 then
    raise exception using errcode = 'MJ400', message = 'enqueue_slot: p_name must have 1 to 128 characters and not be blank';
  end if;
  if v_slot not between '1970-01-01 00:00:00+00' and '9999-12-31 23:59:59+00' then
    raise exception using errcode = 'MJ400', message = 'enqueue_slot: p_slot must lie between the years 1970 and 9999 in UTC';
  end if;
  if v_slot <> date_trunc('second', v_slot) then
    raise exception using errcode = 'MJ400', message = 'enqueue_slot: p_slot must be a whole second',
      hint = 'A slot is when the job was due, the same for all who make it: date_trunc(''minute'', now()), not now().';
  end if;
  v_key := 'schedule:' || p_name || ':' || to_char(v_slot at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
  return query select j.* from public.enqueue_job(
    p_type, p_payload, p_user_id, v_key, p_priority, p_max_attempts, v_slot, public.marian_jobs_slot_id(v_key, v_slot)) j;
end
$$;

comment on function public.enqueue_slot(text, text, timestamptz, jsonb, uuid, integer, integer) is
  'Makes the job of one slot (default: the present minute) of the schedule p_name, due at the slot, and returns its row; where the slot has its job already, whoever made it and whatever became of it, returns that. Raises MJ409 when the slot''s job was made with another type or owner.';

select public.marian_jobs_restrict(
  'public.marian_jobs_slot_id(text, timestamptz)',
  'public.enqueue_slot(text, text, timestamptz, jsonb, uuid, integer, integer)');

notify pgrst, 'reload schema';
