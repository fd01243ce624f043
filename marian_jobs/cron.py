"""When a schedule's jobs are due: pure functions of a schedule and two moments, no clock, no database.

A slot is one moment at which a schedule is due. Its job has a key made of the schedule's name and the slot, and an id
made of that key: whoever makes the slot's job makes the same row, so any number of workers make it once, without a
leader. The id holds even where the key no longer does, which a dead job gives up.

cronsim reads the expressions and walks the calendar. Nights when clocks change are ruled here: an expression that names
hours runs each named time once (the first time where the night has it twice, at the end of the gap where the night
skips it); one that runs in every hour goes by real time.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, takewhile
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from marian_jobs import checks
from marian_jobs.job import JsonObject, NewJob

LOOK_BACK: Final = timedelta(hours=1)
LATE: Final = timedelta(minutes=1)
LONGEST_NAME: Final = 128

_KEY: Final = "schedule:"
_SLOT: Final = "%Y-%m-%dT%H:%M:%SZ"
_SOME_MONDAY: Final = datetime(2024, 1, 1)  # noqa: DTZ001  read as wall time


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job type made again and again: at the times of a cron expression in a time zone.

    `expression` has five fields, or six with the seconds first; `tz` is an IANA name. `name` (default: the type) tells
    schedules apart and must stay the same over deploys. `look_back` is how long ago the latest missed slot may lie to
    be made up. Refuses what is none of this with `ValueError` or `TypeError`.
    """

    expression: str
    type: str
    tz: str = "UTC"
    name: str = ""
    payload: JsonObject = field(default_factory=dict, repr=False)
    user_id: UUID | str | None = None
    priority: int = 0
    max_attempts: int = 3
    look_back: timedelta = LOOK_BACK

    def __post_init__(self) -> None:
        checks.text("type", self.type, longest=128)
        if self.name == "":
            object.__setattr__(self, "name", self.type)
        checks.text("name", self.name, longest=LONGEST_NAME)
        checks.text("expression", self.expression, longest=1000)
        checks.text("tz", self.tz, longest=128)
        checks.duration("look_back", self.look_back, timedelta(days=366))
        _zone(self.tz)
        if next(_walk(self.expression, _SOME_MONDAY), None) is None:
            raise ValueError(f"expression: {self.expression!r} is never due; is there such a day?")
        self.job(_SOME_MONDAY.replace(tzinfo=UTC))

    def job(self, slot: datetime) -> NewJob:
        """The slot's job, due at the slot: by whatever clock it is made, the store's clock lets it start."""
        key = f"{_KEY}{self.name}:{slot.astimezone(UTC).strftime(_SLOT)}"
        return checks.new_job(
            self.type,
            self.payload,
            user_id=self.user_id,
            key=key,
            priority=self.priority,
            max_attempts=self.max_attempts,
            run_after=slot,
            id=_id(key, slot),
        )


def slot_of(key: str | None) -> datetime | None:
    """The slot that a job with this key was made for, in UTC; None where the key is no schedule's."""
    if key is None or not key.startswith(_KEY):
        return None
    try:
        return datetime.strptime(key[-20:], _SLOT).replace(tzinfo=UTC)
    except ValueError:
        return None


def due_slots(schedule: Schedule, since: datetime | None, until: datetime) -> list[datetime]:
    """The slots to make at `until`, in order, when all up to `since` are dealt with (None: it is not known).

    Those of the last minute are only late and all made; of older ones, missed in an outage or between two processes,
    the latest alone, and only if it lies within the look-back.
    """
    missed = until - schedule.look_back
    if since is None:
        return _latest(schedule, missed, until)
    late = max(min(since, until), until - LATE)
    due = list(takewhile(lambda s: s <= until, slots(schedule, late)))
    return due or _latest(schedule, max(missed, since), until)


def next_slot(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot after a moment; None where the calendar has none for fifty years."""
    return next(slots(schedule, after), None)


def slots(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """The schedule's slots after a moment, in order, each once, in UTC."""
    zone = _zone(schedule.tz)
    start = after.astimezone(zone)
    walk = _walk(schedule.expression, start)
    if len(walk.hours) < 24:
        start = start.replace(tzinfo=None)  # the walk is then over wall times
    walk = _walk(" ".join(walk.parts), start)  # all six fields, so that cronsim leaves nights of change to us
    moments = (_moment(wall, zone) for wall in walk)
    return (slot for slot, _ in groupby(moments) if slot > after)


def _latest(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    """The latest slot in (since, until], if any; looks at the end of the stretch first, as there may be thousands."""
    stretch = LATE
    while True:
        start = max(since, until - stretch)
        found = [*takewhile(lambda s: s <= until, slots(schedule, start))][-1:]
        if found or start == since:
            return found
        stretch *= 8


def _walk(expression: str, start: datetime) -> CronSim:
    try:
        return CronSim(expression, start)
    except CronSimError as e:
        raise ValueError(f"expression: {expression!r} is not a cron expression: {str(e).lower()}") from None


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"tz: {name!r} is not a time zone; an IANA name is needed, e.g. 'Asia/Tokyo'") from None


def _moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """The moment of a wall time: the first of two, and for one that the clocks skip the end of the gap."""
    if wall.tzinfo is not None:
        return wall.astimezone(UTC)
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    while moment.astimezone(zone).replace(tzinfo=None) != wall:
        wall = wall.replace(second=0) + timedelta(minutes=1)
        moment = wall.replace(tzinfo=zone).astimezone(UTC)
    return moment


def _id(key: str, slot: datetime) -> UUID:
    """An id of version 8, the key's own: ordered by time as `clock.new_id` orders its."""
    digest = int.from_bytes(hashlib.sha256(key.encode()).digest()[:10])
    millis = int(slot.timestamp() * 1000) & ((1 << 48) - 1)
    return UUID(
        int=(millis << 80) | (0x8 << 76) | ((digest >> 62 & 0xFFF) << 64) | (0b10 << 62) | (digest & ((1 << 62) - 1))
    )
