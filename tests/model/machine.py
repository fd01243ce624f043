"""Several workers, an operator and a network over one store, as a state machine for Hypothesis to play with.

A worker is what it holds: tokens from its polls. The network may lose the answer to a poll (the token is never used),
and keeps every message: any report of any claim, and any whole call, may be delivered at any later time, once more,
in any company.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from marian_jobs import Job, JobFilter, NewJob, Status
from marian_jobs.errors import MarianError
from marian_jobs.job import FINISHED, RUNNABLE, Held
from marian_jobs.store import Failure, Limit, Poll
from tests.model.invariants import Ledger, changed, check_moves, check_rows
from tests.model.oracle import Oracle
from tests.model.virtual import START, VirtualClock

TICK = timedelta(milliseconds=1)
INSTANT = timedelta(microseconds=1)
USERS = [UUID(int=n, version=4) for n in (1, 2)]
UNORDERED = ("fail", "release", "reclaim")

TYPES = ["a", "b"]
REPORTS = ["complete", "fail", "extend", "release"]

types = st.sampled_from(TYPES)
some_types = st.lists(types, min_size=1, max_size=2)
delays = st.sampled_from([timedelta(seconds=s) for s in (0, 1, 60)])
leases = st.sampled_from([timedelta(seconds=s) for s in (1, 30)])
ages = [timedelta(0), timedelta(minutes=1)]
instants = st.sampled_from([timedelta(0), INSTANT])
limited = st.sampled_from([1, 10])
limits = (
    st.just(Limit())
    | st.builds(Limit, max_running=st.integers(1, 2))
    | st.builds(Limit, rate=st.integers(1, 3), per=st.just(timedelta(minutes=1)))
)
new_jobs = st.builds(
    NewJob,
    id=st.uuids(),
    type=types,
    payload=st.fixed_dictionaries({"n": st.integers(0, 9)}),
    user_id=st.none() | st.sampled_from(USERS),
    idempotency_key=st.none() | st.sampled_from(["k1", "k2", "k3"]),
    priority=st.integers(-1, 1),
    max_attempts=st.integers(1, 3),
    delay=st.none() | delays,
) | st.builds(NewJob, id=st.uuids(), type=types, payload=st.just({}), run_after=st.just(START + timedelta(seconds=10)))
workers = st.integers(0, 2)
errors = st.sampled_from(["a", "b"])


class Subject(Protocol):
    """A store under test: its clock, and a way to call it from plain code."""

    clock: VirtualClock

    def send(self, call: str, *arguments: Any) -> Any:
        """What the store's method of that name answers, or raises."""

    def rows(self) -> list[Job]:
        """All that is there."""

    def empty(self) -> None:
        """No jobs, no limits, the clock at its start."""


class Play(RuleBasedStateMachine):
    """Each rule is one call to the store, compared with the oracle, answer and table."""

    subject: Subject

    jobs = Bundle("jobs")
    tokens = Bundle("tokens")

    @initialize(target=jobs, batch=st.lists(new_jobs, min_size=1, max_size=4))
    def begin(self, batch: list[NewJob]) -> Any:
        self.subject.empty()
        self.oracle, self.ledger = Oracle(), Ledger()
        self.rows: dict[UUID, Job] = {}
        self.hands: list[list[Held]] = [[], [], []]
        self.sent: list[tuple[Any, ...]] = []
        return self.enqueue(batch)

    # Producers

    @rule(target=jobs, batch=st.lists(new_jobs, min_size=1, max_size=4))
    def enqueue(self, batch: list[NewJob]) -> Any:
        self.step("enqueue", batch)
        return multiple(*batch)

    @rule(known=st.lists(jobs, min_size=1, max_size=3), batch=st.lists(new_jobs, max_size=1))
    def enqueue_again_among_others(self, known: list[NewJob], batch: list[NewJob]) -> None:
        self.step("enqueue", [*known, *batch])

    # Workers

    @rule(
        target=tokens, worker=workers, limit=st.integers(0, 4), types=some_types, lease=leases,
        room=st.none() | st.dictionaries(types, st.integers(0, 2)), lost=st.integers(0, 3).map(lambda n: n == 0),
    )  # fmt: skip
    def poll(
        self, worker: int, limit: int, types: list[str], lease: timedelta, room: dict[str, int] | None, lost: bool
    ) -> Any:
        room = room if room is None else {type: most for type, most in room.items() if type in types}
        answer = self.step("poll", limit, types, lease, room)
        return multiple() if lost else self.take(worker, answer.jobs)

    @rule(target=tokens, worker=workers, limit=st.integers(1, 4), types=st.none() | some_types, lease=leases)
    def claim(self, worker: int, limit: int, types: list[str] | None, lease: timedelta) -> Any:
        return self.take(worker, self.step("claim", limit, types, lease))

    @precondition(lambda self: self.waiting())
    @rule(target=tokens, data=st.data(), worker=workers)
    def work(self, data: st.DataObject, worker: int) -> Any:
        """What mostly happens: due jobs are taken, and one by one come to something."""
        held = [job.held for job in self.step("poll", 10, TYPES, timedelta(seconds=30)).jobs]
        for token in held:
            self.report(data, data.draw(st.sampled_from(["complete", "complete", "fail", "release"])), [token])
        return multiple(*held)

    @precondition(lambda self: self.leased())
    @rule(target=tokens, worker=workers, lease=leases)
    def overtake(self, worker: int, lease: timedelta) -> Any:
        """Every lease runs out, and one worker takes all there is: what others hold is late from here on."""
        self.subject.clock.move_to(max(self.leased()))
        return self.take(worker, self.step("poll", 10, TYPES, lease, None).jobs)

    @precondition(lambda self: any(self.hands))
    @rule(data=st.data(), lease=leases)
    def beat(self, data: st.DataObject, lease: timedelta) -> None:
        hands = data.draw(st.sampled_from([hands for hands in self.hands if hands]))
        hands[:] = sorted(self.step("extend", list(hands), lease))

    @precondition(lambda self: any(self.hands))
    @rule(data=st.data(), heard=st.booleans())
    def report_a_result(self, data: st.DataObject, heard: bool) -> None:
        hands = data.draw(st.sampled_from([hands for hands in self.hands if hands]))
        token = data.draw(st.sampled_from(hands))
        self.report(data, data.draw(st.sampled_from(["complete", "complete", "fail"])), [token])
        if heard:
            hands.remove(token)

    @precondition(lambda self: any(self.hands))
    @rule(data=st.data(), says=st.booleans())
    def stop(self, data: st.DataObject, says: bool) -> None:
        """A worker ends, and gives back what it holds, or does not live to say so."""
        hands = data.draw(st.sampled_from([hands for hands in self.hands if hands]))
        if says:
            self.report(data, "release", list(hands))
        hands.clear()

    @precondition(lambda self: self.leased())
    @rule(limit=st.integers(1, 3))
    def reclaim(self, limit: int) -> None:
        self.step("reclaim", limit)

    # The network: any token, at any time, in any company

    @rule(data=st.data(), held=st.lists(tokens, min_size=1, max_size=4), call=st.sampled_from(REPORTS))
    def late(self, data: st.DataObject, held: list[Held], call: str) -> None:
        self.report(data, call, held)

    @rule(data=st.data(), token=tokens, id=st.uuids(), call=st.sampled_from(REPORTS))
    def never_issued(self, data: st.DataObject, token: Held, id: UUID, call: str) -> None:
        self.report(data, call, [Held(token.id, token.attempt + 1), Held(id, 1)])

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        self.step(*data.draw(st.sampled_from(self.sent)))

    # An operator

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), call=st.sampled_from(["cancel", "retry", "retry"]))
    def operate(self, data: st.DataObject, call: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.rows)))
        self.step(call, id, *([data.draw(st.none() | st.integers(1, 3))] if call == "retry" else []))

    @precondition(lambda self: self.finished())
    @rule(data=st.data(), kept=st.sampled_from([None, *ages]), age=st.sampled_from(ages), past=instants, limit=limited)
    def prune(self, data: st.DataObject, kept: timedelta | None, age: timedelta, past: timedelta, limit: int) -> None:
        """When one job is exactly as old as is asked for, or the least bit older."""
        job = data.draw(st.sampled_from(self.finished()))
        self.subject.clock.move_to(job.updated_at + age + past)
        bounds = (age, kept) if job.status is Status.SUCCEEDED else (kept, age)
        self.step("prune", *bounds, limit)

    @rule(data=st.data(), type=types, call=st.sampled_from(["pause", "resume", "resume", "limit"]))
    def set_limits(self, data: st.DataObject, type: str, call: str) -> None:
        self.step(call, type, *([data.draw(limits)] if call == "limit" else []))

    @rule(
        new=jobs, status=st.none() | st.sampled_from(Status), by=st.sampled_from(["type", "user_id", "idempotency_key"])
    )
    def look(self, new: NewJob, status: Status | None, by: str) -> None:
        self.step("get", new.id)
        self.step("find", JobFilter(status=status, limit=3, **{by: getattr(new, by)}))
        self.step("stats")

    # Time

    @rule(by=st.sampled_from([timedelta(seconds=s) for s in (1, 30, 60, 300)]))
    def time_passes(self, by: timedelta) -> None:
        self.subject.clock.move_by(by)

    @precondition(lambda self: self.moments())
    @rule(target=tokens, data=st.data(), worker=workers, short_of=instants, reclaims=st.booleans())
    def be_there_on_time(self, data: st.DataObject, worker: int, short_of: timedelta, reclaims: bool) -> Any:
        """A call at the very moment when something is due or a lease over, or the least bit before."""
        self.subject.clock.move_to(data.draw(st.sampled_from(self.moments())) - short_of)
        if not reclaims:
            return self.take(worker, self.step("claim", 10, None, timedelta(seconds=30)))
        self.step("reclaim", 10)
        return multiple()

    @invariant()
    def rows_are_sound(self) -> None:
        check_rows(self.rows)

    def step(self, call: str, *arguments: Any) -> Any:
        """The answer to one call, after it and the whole table have been found right."""
        before = self.rows
        answer = _outcome(lambda: self.subject.send(call, *arguments))
        after = {job.id: job for job in self.subject.rows()}
        self.oracle.see(self.subject.clock.now, after, answer)
        expected = _outcome(lambda: getattr(self.oracle, call)(*arguments))
        actual = sorted(answer, key=lambda job: job.id) if call in UNORDERED and isinstance(answer, list) else answer
        assert expected == actual, f"{call}: expected {expected}, got {actual}"
        assert self.oracle.jobs == after
        self.check(call, arguments, answer, before, after)
        self.rows = after
        if call in REPORTS or (call == "enqueue" and len(self.sent) < 2):
            self.sent.append((call, *arguments))
        self.subject.clock.move_by(TICK)
        return answer

    def check(self, call: str, arguments: Any, answer: Any, before: dict[UUID, Job], after: dict[UUID, Job]) -> None:
        check_moves(call, before, after)
        moved = changed(before, after)
        self.ledger.forget(before.keys() - after.keys())
        if call in ("claim", "poll"):
            self.ledger.issue(job.held for job in (answer.jobs if isinstance(answer, Poll) else answer))
        elif call == "fail":
            for token, error in {(Held(f.id, f.attempt), f.error) for f in arguments[0]}:
                if token in {job.held for job in answer}:
                    self.ledger.accept(f"failed: {error}", {token}, moved)
        elif call == "complete":
            self.ledger.accept("succeeded", answer, moved)
        elif call == "release":
            self.ledger.accept("released", {job.held for job in answer}, moved)
        elif call in ("get", "find", "stats", "pause", "resume", "limit") or isinstance(answer, type) or not answer:
            assert moved == set()  # a refusal changes nothing

    def report(self, data: st.DataObject, call: str, held: list[Held]) -> None:
        if call == "fail":
            error, retry_in = data.draw(errors), data.draw(st.none() | delays)
            dead = data.draw(st.integers(0, 3)) == 0
            self.step("fail", [Failure(*token, error, retry_in, dead) for token in held])
        elif call == "complete":
            self.step("complete", held)
        else:
            self.step(call, held, data.draw(leases if call == "extend" else delays))

    def take(self, worker: int, jobs: Sequence[Job]) -> Any:
        tokens = [job.held for job in jobs]
        self.hands[worker] += tokens
        return multiple(*tokens)

    def finished(self) -> list[Job]:
        return [job for job in self.rows.values() if job.status in FINISHED]

    def waiting(self) -> list[Job]:
        return [job for job in self.rows.values() if job.status in RUNNABLE]

    def leased(self) -> list[datetime]:
        return [job.lease_until for job in self.rows.values() if job.lease_until is not None]

    def moments(self) -> list[datetime]:
        """When something will be due, or a lease over."""
        times = {job.lease_until or job.run_after for job in self.rows.values() if job.status not in FINISHED}
        return sorted(time for time in times if time > self.subject.clock.now)


def _outcome(call: Any) -> Any:
    """The answer, or the kind of refusal."""
    try:
        return call()
    except MarianError as refusal:
        return type(refusal)
