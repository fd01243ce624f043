"""The queue's own metrics: how many jobs there are, and how long the oldest due one has waited."""

from collections.abc import Callable, Iterable, Iterator

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from marian_jobs.stats_reader import StatsReader
from marian_jobs.store import Stat
from marian_jobs.telemetry import names


def measure_depth(meter: Meter, reader: StatsReader) -> None:
    """Makes the gauges; they ask the reader whenever metrics are collected, and are silent when it knows nothing."""

    def gauge(name: str, unit: str, about: str, read: Callable[[Stat], Iterable[Observation]]) -> None:
        def observe(options: CallbackOptions) -> Iterator[Observation]:
            for stat in reader.read() or ():
                yield from read(stat)

        meter.create_observable_gauge(name, [observe], unit, about)

    gauge("marian_jobs.queue.jobs", "{job}", "Jobs in the table.", _count)
    gauge("marian_jobs.queue.oldest_due.age", "s", "How long the oldest due job has waited.", _age)
    gauge("marian_jobs.queue.expired_leases", "{job}", "Running jobs whose leases have run out.", _expired)


def _of(stat: Stat) -> names.Attributes:
    return {names.SYSTEM: names.SCOPE, names.DESTINATION: stat.type, names.STATUS: stat.status.value}


def _count(stat: Stat) -> Iterator[Observation]:
    yield Observation(stat.count, _of(stat))


def _age(stat: Stat) -> Iterator[Observation]:
    if stat.oldest_due_age is not None:
        yield Observation(stat.oldest_due_age.total_seconds(), _of(stat))


def _expired(stat: Stat) -> Iterator[Observation]:
    if stat.status.value == "running":
        yield Observation(stat.expired_leases, _of(stat))
