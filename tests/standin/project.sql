-- What the image has otherwise than a project whose auth service has run: its functions read the older settings, which
-- PostgREST does not set any more, and the API's role has no password.

create or replace function auth.uid() returns uuid language sql stable as $$
  select nullif(current_setting('request.jwt.claim.sub', true), '')::uuid
$$;

create or replace function auth.role() returns text language sql stable as $$
  select nullif(current_setting('request.jwt.claim.role', true), '')::text
$$;

drop function auth.jwt();

alter role authenticator password null;
