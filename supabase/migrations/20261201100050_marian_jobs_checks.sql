-- What the functions ask of their callers: which role, which arguments, which transaction.

create function public.marian_jobs_restrict(variadic p_functions regprocedure[])
returns void
language plpgsql
set search_path = ''
as $$
declare
  v_function regprocedure;
  v_role     text;
begin
  -- Functions are executable by PUBLIC from birth, and Supabase's older default grants them to anon and authenticated
  -- by name besides, which revoking from PUBLIC leaves in place. Newer projects grant service_role nothing. On a plain
  -- PostgreSQL the three roles may not exist.
  foreach v_function in array p_functions loop
    execute format('revoke all on function %s from public', v_function);
    for v_role in select rolname from pg_catalog.pg_roles where rolname in ('anon', 'authenticated', 'service_role') loop
      execute format('revoke all on function %s from %I', v_function, v_role);
    end loop;
    if to_regrole('service_role') is not null then
      execute format('grant execute on function %s to service_role', v_function);
    end if;
  end loop;
end
$$;

comment on function public.marian_jobs_restrict(regprocedure[]) is
  'For migrations: leaves each function executable by its owner and service_role alone.';

create function public.marian_jobs_check_lease(p_function text, p_lease interval)
returns void
language plpgsql
immutable
set search_path = ''
as $$
begin
  if p_lease is null or p_lease <= interval '0' or p_lease > interval '365 days' then
    raise exception using errcode = 'MJ400', message = p_function || ': a lease must be longer than zero and at most 365 days';
  end if;
end
$$;

comment on function public.marian_jobs_check_lease(text, interval) is
  'Raises MJ400 unless the lease is longer than zero and at most 365 days.';

create function public.marian_jobs_check_isolation(p_function text)
returns void
language plpgsql
stable
set search_path = ''
as $$
begin
  -- On an older snapshot a row that another session has moved would end in 40001, which no function here raises.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'MJ425', message = p_function || ': the transaction must be READ COMMITTED',
      hint = 'Moves of a job look at the row as it is now, which an older snapshot cannot.';
  end if;
end
$$;

comment on function public.marian_jobs_check_isolation(text) is
  'Raises MJ425 unless the transaction is READ COMMITTED (or READ UNCOMMITTED, its synonym in Postgres).';

create function public.marian_jobs_check_held(p_function text, p_ids uuid[], p_attempts integer[])
returns void
language plpgsql
immutable
set search_path = ''
as $$
begin
  if p_ids is null or p_attempts is null or cardinality(p_ids) <> cardinality(p_attempts) then
    raise exception using errcode = 'MJ400', message = p_function || ': p_ids and p_attempts must be arrays of one length';
  end if;
end
$$;

comment on function public.marian_jobs_check_held(text, uuid[], integer[]) is
  'Raises MJ400 unless both arrays are there and of one length.';

select public.marian_jobs_restrict(
  'public.marian_jobs_restrict(regprocedure[])',
  'public.marian_jobs_check_lease(text, interval)',
  'public.marian_jobs_check_isolation(text)',
  'public.marian_jobs_check_held(text, uuid[], integer[])');
