-- Which rights on new objects in public the API roles have by default. The setting marian.grants is 'all' (projects from
-- before 2026: every right) or 'none'.

do $$
declare
  v_maker text;
  v_kind  text;
begin
  foreach v_maker in array array['postgres', 'supabase_admin'] loop
    foreach v_kind in array array['tables', 'functions', 'sequences'] loop
      execute format(
        case current_setting('marian.grants')
          when 'all' then 'alter default privileges for role %I in schema public grant all on %s to postgres, anon, authenticated, service_role'
          else 'alter default privileges for role %I in schema public revoke all on %s from anon, authenticated, service_role'
        end,
        v_maker, v_kind);
    end loop;
  end loop;
end
$$;
