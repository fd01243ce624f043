-- What a Supabase project's database looks like before the first migration: its roles, its auth schema, and its default
-- privileges. Run once as the superuser in template1, so that every database made later has it all.
-- The setting marian.grants is 'all' (projects from before 2026: new objects in public are granted to the API roles) or 'none'.

create role postgres login createrole createdb replication bypassrls password 'postgres';
create role anon nologin noinherit;
create role authenticated nologin noinherit;
create role service_role nologin noinherit bypassrls;
create role authenticator login noinherit password 'postgres';
create role supabase_auth_admin login noinherit createrole password 'postgres';

grant anon, authenticated, service_role to authenticator;
grant anon, authenticated, service_role to postgres with admin option;
grant pg_monitor, pg_signal_backend, pg_read_all_data to postgres;
alter role authenticator set statement_timeout = '8s';
alter role authenticator set lock_timeout = '8s';
alter role anon set statement_timeout = '3s';
alter role authenticated set statement_timeout = '8s';

grant usage on schema public to anon, authenticated, service_role;
grant all on schema public to postgres;

create schema extensions authorization postgres;
grant usage on schema extensions to anon, authenticated, service_role;

create schema auth authorization supabase_auth_admin;
grant usage on schema auth to anon, authenticated, service_role;
grant all on schema auth to postgres;

create table auth.users (
  instance_id        uuid,
  id                 uuid not null primary key,
  aud                varchar(255),
  role               varchar(255),
  email              varchar(255),
  encrypted_password varchar(255),
  email_confirmed_at timestamptz,
  last_sign_in_at    timestamptz,
  raw_app_meta_data  jsonb,
  raw_user_meta_data jsonb,
  created_at         timestamptz,
  updated_at         timestamptz,
  is_anonymous       boolean not null default false
);
create unique index users_email_partial_key on auth.users (email);
alter table auth.users owner to supabase_auth_admin;
alter table auth.users enable row level security;
grant all on auth.users to postgres with grant option;

create function auth.uid() returns uuid language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')
  )::uuid
$$;

create function auth.role() returns text language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.role', true), ''),
    (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role')
  )::text
$$;

create function auth.jwt() returns jsonb language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')
  )::jsonb
$$;

alter function auth.uid() owner to supabase_auth_admin;
alter function auth.role() owner to supabase_auth_admin;
alter function auth.jwt() owner to supabase_auth_admin;

create publication supabase_realtime;
alter publication supabase_realtime owner to postgres;

do $$
declare
  v_extension text;
begin
  for v_extension in
    select name from pg_catalog.pg_available_extensions where name in ('pgcrypto', 'uuid-ossp', 'pg_stat_statements', 'vector')
  loop
    execute format('create extension %I schema extensions', v_extension);
  end loop;
end
$$;

do $$
declare
  v_maker text;
  v_kind  text;
begin
  if current_setting('marian.grants') = 'all' then
    foreach v_maker in array array['postgres', 'supabase_admin'] loop
      foreach v_kind in array array['tables', 'functions', 'sequences'] loop
        execute format(
          'alter default privileges for role %I in schema public grant all on %s to postgres, anon, authenticated, service_role',
          v_maker, v_kind
        );
      end loop;
    end loop;
  end if;
end
$$;
