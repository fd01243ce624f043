#!/bin/sh
# Begins as the image's own entrypoint does: makes the cluster with the superuser supabase_admin and the passwords asked
# for, runs the project's SQL in the database postgres over the socket alone, and only then listens.
set -eu
export PATH="$POSTGRES_BIN:/usr/bin:/bin"

ask() {
  psql --no-psqlrc -q -v ON_ERROR_STOP=1 -h /tmp -U supabase_admin -d postgres "$@"
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
  initdb -D "$PGDATA" -U supabase_admin --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 --no-sync \
    -E UTF8 --locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  "$@" -c listen_addresses= &
  until ask -c 'select 1' >/dev/null 2>&1; do sleep 0.1; done
  ask -f /project.sql
  ask -c "alter role postgres password '$POSTGRES_PASSWORD'"
  kill -INT $!
  wait $!
fi

# The image's background workers sit in the database postgres, and come back when they are sent away.
while true; do
  sleep 1
  ask -c 'select pg_sleep(1000000)' >/dev/null 2>&1 || true
done &

exec "$@"
