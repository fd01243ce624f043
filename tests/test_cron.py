"""Which slots a schedule has, and which of them are to be made."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marian_jobs.cron import Schedule, due_slots, next_slot, slot_of, slots

NEW_YORK = "America/New_York"
ZONES = [NEW_YORK, "Europe/Berlin", "Australia/Lord_Howe", "Asia/Beirut", "America/Havana", "Asia/Tokyo", "UTC"]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(schedule: Schedule, after: str, n: int) -> list[str]:
    """The first slots after a moment as wall times with their offsets."""
    zone = ZoneInfo(schedule.tz)
    return [f"{s.astimezone(zone):%d %H:%M:%S %z}" for s in islice(slots(schedule, at(after)), n)]


def test_three_in_the_morning_is_by_the_clocks_of_the_zone() -> None:
    assert next_slot(Schedule("0 3 * * *", "t", tz="Asia/Tokyo"), at("2026-05-01T17:59")) == at("2026-05-01T18:00")


def test_a_sixth_field_in_front_is_the_seconds() -> None:
    assert first(Schedule("*/20 * * * * *", "t"), "2026-05-01T00:00", 2) == ["01 00:00:20 +0000", "01 00:00:40 +0000"]


@pytest.mark.parametrize("expression", ["30 1 * * *", "0 30 1 * * *"])
@pytest.mark.parametrize("after", ["2026-11-01T04:00", "2026-11-01T05:29:59.5"])
def test_a_time_that_the_night_has_twice_is_due_the_first_time(expression: str, after: str) -> None:
    assert first(Schedule(expression, "t", tz=NEW_YORK), after, 2) == ["01 01:30:00 -0400", "02 01:30:00 -0500"]


@pytest.mark.parametrize("after", ["2026-11-01T05:30", "2026-11-01T05:45", "2026-11-01T06:10", "2026-11-01T06:30"])
def test_and_not_the_second_time_wherever_one_starts_to_look(after: str) -> None:
    assert first(Schedule("30 1 * * *", "t", tz=NEW_YORK), after, 1) == ["02 01:30:00 -0500"]


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *", "*/10 2 * * *", "*/10 0,30 2 * * *"])
def test_times_that_the_night_skips_are_due_once_when_the_gap_ends(expression: str) -> None:
    slot, following = first(Schedule(expression, "t", tz=NEW_YORK), "2026-03-08T04:00", 2)
    assert (slot, following[:5]) == ("08 03:00:00 -0400", "09 02")


@pytest.mark.parametrize("hours", ["*", "*/1", "0-23"])
def test_every_hour_goes_by_real_time(hours: str) -> None:
    schedule = Schedule(f"30 {hours} * * *", "t", tz=NEW_YORK)
    for night in ("2026-03-08T04:00", "2026-11-01T04:00"):
        assert [s - at(night) for s in islice(slots(schedule, at(night)), 6)] == [
            timedelta(hours=n, minutes=30) for n in range(6)
        ]


FIELD = st.sampled_from(["*", "0", "30", "*/7", "10-20", "5,45"])
HOUR = st.sampled_from(["*", "*/1", "0-23", "0", "1", "2", "*/2", "1-3", "0,23"])
MOMENT = st.sampled_from(["2026-03-08T07", "2026-11-01T06", "2026-03-29T01", "2026-10-25T01", "2026-04-04T15"]).flatmap(
    lambda hour: st.integers(-8000, 8000).map(lambda s: at(hour) + timedelta(seconds=s))
)


@given(st.tuples(st.sampled_from(["0", "15"]), FIELD, HOUR), st.sampled_from(ZONES), MOMENT, st.integers(0, 9000))
def test_slots_are_the_same_wherever_one_starts_to_look(
    fields: tuple[str, str, str], zone: str, since: datetime, seconds: int
) -> None:
    schedule = Schedule(" ".join([*fields, "*", "*", "*"]), "t", tz=zone)
    middle, until = since + timedelta(seconds=seconds), since + timedelta(seconds=9000)
    whole = list(takewhile(lambda s: s <= until, slots(schedule, since)))
    parts = [*takewhile(lambda s: s <= middle, slots(schedule, since))]
    parts += takewhile(lambda s: s <= until, slots(schedule, middle))
    assert parts == whole
    assert all(a < b for a, b in zip([since, *whole], whole, strict=False))


class TestDueSlots:
    minutely = Schedule("* * * * *", "t")
    now = at("2026-05-01T12:30:10")

    def test_one_that_starts_makes_up_the_latest_slot(self) -> None:
        assert due_slots(self.minutely, None, self.now) == [at("2026-05-01T12:30")]

    def test_but_none_that_lies_further_back_than_its_look_back(self) -> None:
        daily = Schedule("0 12 * * *", "t", look_back=timedelta(minutes=30))
        assert due_slots(daily, None, self.now) == []
        assert due_slots(daily, None, self.now - timedelta(seconds=11)) == [at("2026-05-01T12:00")]
        assert due_slots(Schedule("30 12 * * *", "t", look_back=timedelta(0)), None, self.now) == []

    def test_one_that_goes_on_makes_what_came_since(self) -> None:
        assert due_slots(self.minutely, at("2026-05-01T12:30"), self.now) == []
        assert due_slots(self.minutely, at("2026-05-01T12:29:59"), self.now) == [at("2026-05-01T12:30")]

    def test_slots_of_the_last_minute_are_only_late(self) -> None:
        each_second = Schedule("* * * * * *", "t")
        assert len(due_slots(each_second, self.now - timedelta(seconds=7), self.now)) == 7

    def test_of_an_outage_the_latest_slot_is_made_up(self) -> None:
        hourly = Schedule("0 * * * *", "t", look_back=timedelta(days=1))
        assert due_slots(hourly, at("2026-05-01T02:00"), self.now) == [at("2026-05-01T12:00")]
        assert due_slots(hourly, at("2026-05-01T12:00"), self.now) == []

    def test_a_clock_set_back_waits_for_the_next_slot(self) -> None:
        assert due_slots(self.minutely, self.now + timedelta(hours=5), self.now) == []


class TestJob:
    slot = at("2026-05-01T18:00")

    def test_the_same_slot_is_the_same_job_whoever_makes_it(self) -> None:
        one, two = (Schedule("0 3 * * *", "t", tz="Asia/Tokyo", name="n").job(self.slot) for _ in range(2))
        assert one == two
        assert (one.idempotency_key, one.run_after) == ("schedule:n:2026-05-01T18:00:00Z", self.slot)

    def test_other_slots_and_names_are_other_jobs(self) -> None:
        jobs = [Schedule("* * * * *", "t", name=n).job(self.slot + timedelta(minutes=m)) for n in "ab" for m in (0, 1)]
        assert len({j.id for j in jobs}) == len({j.idempotency_key for j in jobs}) == 4

    def test_ids_are_uuids_in_the_order_of_the_slots(self) -> None:
        ids = [Schedule("* * * * *", "t").job(self.slot + timedelta(minutes=m)).id for m in range(50)]
        assert ids == sorted(ids)
        assert {(i.version, i.variant) for i in ids} == {(8, "specified in RFC 4122")}

    def test_a_handler_learns_the_slot_from_the_key(self) -> None:
        assert slot_of(Schedule("* * * * *", "t", name="a:b").job(self.slot).idempotency_key) == self.slot
        assert [slot_of(key) for key in (None, "invoice:1", "schedule:x")] == [None, None, None]


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        ("", {}, "expression: must not be empty"),
        ("* * * *", {}, "wrong number of fields"),
        ("61 * * * *", {}, "bad minute"),
        ("@daily", {}, "not a cron expression"),
        ("0 0 30 2 *", {}, "bad day-of-month"),
        ("* * * * *", {"tz": "Asia/Tokio"}, "tz: 'Asia/Tokio' is not a time zone"),
        ("* * * * *", {"tz": "../etc/passwd"}, "is not a time zone"),
        ("* * * * *", {"tz": "America"}, "is not a time zone"),
        ("* * * * *", {"tz": ""}, "tz: must not be empty"),
        ("* * * * *", {"type": " "}, "type: must not be empty"),
        ("* * * * *", {"name": "x" * 200}, "name: must be at most 128"),
        ("* * * * *", {"payload": {"n": float("nan")}}, "payload.n: nan is not a JSON number"),
        ("* * * * *", {"max_attempts": 0}, "max_attempts: must be between"),
        ("* * * * *", {"look_back": timedelta(-1)}, "look_back: must be between"),
    ],
)
def test_what_is_no_schedule_is_refused_when_it_is_made(
    expression: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Schedule(expression, **{"type": "t", **options})  # type: ignore[arg-type]


def test_the_latest_slot_of_a_long_look_back_is_found_fast() -> None:
    schedule = Schedule("* * * * * *", "t", tz=NEW_YORK, look_back=timedelta(days=366))
    assert len(due_slots(schedule, None, at("2026-05-01T12:30:10"))) == 1
