-- What a Supabase project's database looks like before the first migration: its roles and its auth schema. Run once as the
-- superuser in template1, before auth_functions.sql and default_privileges.sql, so that every database made later has it all.

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
