"""A clock that stands still until a test moves it: in Python a value, in a database a row.

The shipped functions ask `clock_timestamp()` and `statement_timestamp()` and nothing else. A superuser may give those
two another meaning inside one database: the built-in ones are renamed and others, which read a table, take their
names. So the migrations run as they are shipped, and "due at this very microsecond" can be tested as such.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg

START = datetime(2030, 1, 1, tzinfo=UTC)

_INSTALL = """
create table public.virtual_clock (now timestamptz not null);
insert into public.virtual_clock values ('2030-01-01 00:00:00+00');
grant select on public.virtual_clock to public;
alter function pg_catalog.clock_timestamp() rename to built_in_clock_timestamp;
alter function pg_catalog.statement_timestamp() rename to built_in_statement_timestamp;
create function pg_catalog.clock_timestamp() returns timestamptz
  language sql volatile as 'select c.now from public.virtual_clock c';
create function pg_catalog.statement_timestamp() returns timestamptz
  language sql stable as 'select c.now from public.virtual_clock c';
"""


class VirtualClock:
    """Says `now`; moves forward only, and tells whoever keeps the same time of every move."""

    def __init__(self, tell: Callable[[datetime], object] = lambda _: None) -> None:
        self._tell = tell
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def reset(self) -> None:
        """Back to the start, for a new and empty store."""
        self.now = START
        self._tell(self.now)

    def move_to(self, moment: datetime) -> None:
        """To the moment, unless that is past."""
        self.now = max(self.now, moment)
        self._tell(self.now)

    def move_by(self, duration: timedelta) -> None:
        """Forward."""
        self.move_to(self.now + duration)


def install(superuser_dsn: str) -> None:
    """Gives one database a clock of its own."""
    with psycopg.connect(superuser_dsn) as connection:
        connection.execute(_INSTALL)
