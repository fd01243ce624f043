"""Several workers, an operator and a network over one store, as a state machine for Hypothesis to play with.

A worker is what it holds: tokens from its polls. The network may lose the answer to a poll (the token is never used),
and keeps every message: any report of any claim, and any whole call, may be delivered at any later time, once more,
in any company.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from marian_jobs import Job, JobFilter, NewJob, Status
from marian_jobs.errors import MarianError
from marian_jobs.job import FINISHED, Held
from marian_jobs.store import Failure, Limit, Poll
from tests.model.invariants import Ledger, changed, check_moves, check_rows
from tests.model.oracle import Oracle
from tests.model.virtual import START, VirtualClock

TICK = timedelta(milliseconds=1)
INSTANT = timedelta(microseconds=1)
USERS = [UUID(int=n, version=4) for n in (1, 2)]
UNORDERED = ("fail", "release", "reclaim")

types = st.sampled_from("abc")
some_types = st.lists(types, min_size=1, max_size=3)
delays = st.sampled_from([timedelta(seconds=s) for s in (0, 1, 60)])
leases = st.sampled_from([timedelta(seconds=s) for s in (1, 30)])
ages = st.none() | st.sampled_from([timedelta(0), timedelta(minutes=1)])
limits = st.builds(Limit, max_running=st.none() | st.integers(1, 2)) | st.builds(
    Limit, rate=st.integers(1, 3), per=st.just(timedelta(minutes=1))
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


@dataclass
class Hands:
    """What one worker believes to hold."""

    tokens: list[Held]


class Play(RuleBasedStateMachine):
    """Each rule is one call to the store, compared with the oracle, answer and table."""

    subject: Subject

    jobs = Bundle("jobs")
    tokens = Bundle("tokens")

    @initialize()
    def begin(self) -> None:
        self.subject.empty()
        self.oracle, self.ledger = Oracle(), Ledger()
        self.rows: dict[UUID, Job] = {}
        self.hands = [Hands([]) for _ in range(3)]
        self.sent: list[tuple[Any, ...]] = []

    # Producers

    @rule(target=jobs, new=new_jobs)
    def enqueue(self, new: NewJob) -> NewJob:
        self.step("enqueue", [new])
        return new

    @rule(target=jobs, batch=st.lists(new_jobs, max_size=4))
    def enqueue_many(self, batch: list[NewJob]) -> Any:
        self.step("enqueue", batch)
        return multiple(*batch)

    @rule(known=st.lists(jobs, min_size=1, max_size=3), new=st.lists(new_jobs, max_size=1))
    def resend_among_others(self, known: list[NewJob], new: list[NewJob]) -> None:
        self.step("enqueue", [*known, *new])

    # Workers

    @rule(
        target=tokens, worker=workers, limit=st.integers(0, 4), types=some_types, lease=leases,
        room=st.none() | st.dictionaries(types, st.integers(0, 2)), lost=st.booleans(),
    )  # fmt: skip
    def poll(
        self, worker: int, limit: int, types: list[str], lease: timedelta, room: dict[str, int] | None, lost: bool
    ) -> Any:
        room = room if room is None else {type: most for type, most in room.items() if type in types}
        return self.take(worker, lost, self.step("poll", limit, types, lease, room))

    @rule(target=tokens, worker=workers, limit=st.integers(1, 4), types=st.none() | some_types, lease=leases)
    def claim(self, worker: int, limit: int, types: list[str] | None, lease: timedelta) -> Any:
        return self.take(worker, False, self.step("claim", limit, types, lease))

    @rule(worker=workers, lease=leases)
    def beat(self, worker: int, lease: timedelta) -> None:
        hands = self.hands[worker]
        hands.tokens = sorted(self.step("extend", hands.tokens, lease))

    @precondition(lambda self: any(hands.tokens for hands in self.hands))
    @rule(data=st.data(), heard=st.booleans())
    def report_a_result(self, data: st.DataObject, heard: bool) -> None:
        hands = data.draw(st.sampled_from([hands for hands in self.hands if hands.tokens]))
        token = data.draw(st.sampled_from(hands.tokens))
        if data.draw(st.booleans()):
            self.step("complete", [token])
        else:
            retry_in, dead = data.draw(st.none() | delays), data.draw(st.integers(0, 3)) == 0
            self.step("fail", [Failure(*token, data.draw(errors), retry_in, dead)])
        if heard:
            hands.tokens.remove(token)

    @rule(worker=workers, delay=delays)
    def stop(self, worker: int, delay: timedelta) -> None:
        self.step("release", self.hands[worker].tokens, delay)
        self.hands[worker].tokens = []

    @rule(worker=workers)
    def crash(self, worker: int) -> None:
        self.hands[worker].tokens = []

    @rule(limit=st.integers(1, 3))
    def reclaim(self, limit: int) -> None:
        self.step("reclaim", limit)

    # The network: any token, at any time, in any company

    @rule(held=st.lists(tokens | st.builds(Held, st.uuids(), st.just(1)), max_size=4), early=st.booleans())
    def late_complete(self, held: list[Held], early: bool) -> None:
        self.step("complete", [Held(t.id, t.attempt + 1) for t in held] if early else held)

    @rule(held=st.lists(tokens, max_size=4), error=errors, retry_in=st.none() | delays, dead=st.booleans())
    def late_fail(self, held: list[Held], error: str, retry_in: timedelta | None, dead: bool) -> None:
        self.step("fail", [Failure(*token, error, retry_in, dead) for token in held])

    @rule(held=st.lists(tokens, max_size=4), lease=leases)
    def late_extend(self, held: list[Held], lease: timedelta) -> None:
        self.step("extend", held, lease)

    @rule(held=st.lists(tokens, max_size=4), delay=delays)
    def late_release(self, held: list[Held], delay: timedelta) -> None:
        self.step("release", held, delay)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        self.step(*data.draw(st.sampled_from(self.sent)))

    # An operator

    @rule(new=jobs)
    def cancel(self, new: NewJob) -> None:
        self.step("cancel", new.id)

    @rule(new=jobs, budget=st.none() | st.integers(1, 3))
    def retry(self, new: NewJob, budget: int | None) -> None:
        self.step("retry", new.id, budget)

    @rule(succeeded=ages, dead=ages, limit=st.integers(1, 4))
    def prune(self, succeeded: timedelta | None, dead: timedelta | None, limit: int) -> None:
        self.step("prune", succeeded, dead, limit)

    @rule(type=types, call=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, type: str, call: str) -> None:
        self.step(call, type)

    @rule(type=types, limit=limits)
    def limit(self, type: str, limit: Limit) -> None:
        self.step("limit", type, limit)

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
    @rule(data=st.data(), short_of=st.sampled_from([timedelta(0), INSTANT]))
    def time_passes_to_an_edge(self, data: st.DataObject, short_of: timedelta) -> None:
        self.subject.clock.move_to(data.draw(st.sampled_from(self.moments())) - short_of)

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
        assert expected == (sorted(answer, key=lambda job: job.id) if call in UNORDERED else answer)
        assert self.oracle.jobs == after
        self.check(call, arguments, answer, before, after)
        self.rows = after
        if call in ("enqueue", "complete", "fail", "extend", "release", "reclaim"):
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

    def take(self, worker: int, lost: bool, answer: Poll | list[Job]) -> Any:
        tokens = [job.held for job in (answer.jobs if isinstance(answer, Poll) else answer)]
        if lost:
            return multiple()
        self.hands[worker].tokens += tokens
        return multiple(*tokens)

    def moments(self) -> list[Any]:
        """When something will be due, or a lease over."""
        unfinished = [job for job in self.rows.values() if job.status not in FINISHED]
        times = {job.lease_until or job.run_after for job in unfinished}
        return sorted(time for time in times if time > self.subject.clock.now)


def _outcome(call: Any) -> Any:
    """The answer, or the kind of refusal."""
    try:
        return call()
    except MarianError as refusal:
        return type(refusal)
