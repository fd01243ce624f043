"""What is sampled: the memory and handles of every process, and what the database says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil
import psycopg

from soak.verdict import Series

MIB = 1024 * 1024
_DATABASE = """
select pg_table_size('public.marian_jobs') / 1048576.0,
       pg_indexes_size('public.marian_jobs') / 1048576.0,
       (select sum(pg_relation_size(i.indexrelid)) from pg_index i
         where i.indrelid = 'public.marian_jobs'::regclass and not i.indisprimary) / 1048576.0,
       (select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()),
       (select n_dead_tup from pg_stat_user_tables where relid = 'public.marian_jobs'::regclass),
       (select count(*) from public.marian_jobs),
       (select count(*) from public.marian_jobs where status in ('queued', 'retrying') and run_after <= now()),
       pg_database_size(current_database()) / 1048576.0
"""
# name, unit, and what is no growth yet
_FIGURES = (
    ("table", "MiB", 2.0),
    ("indexes", "MiB", 2.0),
    ("indexes without the primary key", "MiB", 2.0),
    ("connections", "", 2.0),
    ("dead rows", "rows", 10_000.0),
    ("rows", "rows", 500.0),
    ("due and waiting", "rows", 200.0),
    ("database", "MiB", 4.0),
)


@dataclass
class Samples:
    """All series, sampled together; `processes` are the roots of what is watched, by name."""

    processes: Mapping[str, int]
    at: list[float] = field(default_factory=list)
    _values: dict[str, list[float]] = field(default_factory=dict)
    _kinds: dict[str, tuple[str, float]] = field(default_factory=dict)

    def take(self, now: float, connection: "psycopg.Connection[tuple[float, ...]]") -> None:
        """One sample of everything, at `now` seconds into the run."""
        self.at.append(now)
        for name, pid in self.processes.items():
            self._add_process(name, psutil.Process(pid))
        row = connection.execute(_DATABASE).fetchone()
        assert row is not None
        for (name, unit, floor), value in zip(_FIGURES, row, strict=True):
            self._add(name, unit, floor, float(value or 0))

    @property
    def series(self) -> list[Series]:
        """Every series taken."""
        return [Series(name, *self._kinds[name], values) for name, values in self._values.items()]

    def __getitem__(self, name: str) -> Sequence[float]:
        return self._values[name]

    def _add_process(self, name: str, root: psutil.Process) -> None:
        for part, members in _parts(name, root).items():
            self._add(f"memory: {part}", "MiB", 6.0, sum(_memory(each) for each in members))
        self._add(f"open files: {name}", "", 4.0, float(root.num_fds()))
        self._add(f"threads: {name}", "", 2.0, float(root.num_threads()))

    def _add(self, name: str, unit: str, floor: float, value: float) -> None:
        self._kinds[name] = (unit, floor)
        self._values.setdefault(name, []).append(round(value, 3))


def _parts(name: str, root: psutil.Process) -> dict[str, list[psutil.Process]]:
    """The processes below a root, told apart by their program: the local stack starts several kinds."""
    found: dict[str, list[psutil.Process]] = {name: [root]}
    if name != "gateway":
        return {name: [root, *_children(root)]}
    found |= {"postgres": [], "postgrest": []}
    for child in _children(root):
        program = _program(child)
        if program in found:
            found[program].append(child)
    return found


def _children(root: psutil.Process) -> list[psutil.Process]:
    children: list[psutil.Process] = root.children(recursive=True)
    return children


def _program(process: psutil.Process) -> str:
    try:
        name: str = process.name()
    except psutil.NoSuchProcess:
        return ""
    return name


def _memory(process: psutil.Process) -> float:
    """Its own memory in MiB: what would be free if it ended. Pages shared by Postgres' backends are nobody's."""
    try:
        own: int = process.memory_full_info().uss
    except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
        return 0.0  # a backend that has just ended
    return own / MIB
