"""The judge is judged: an honest history passes, and each planted fault breaks the rule that is there for it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from chaos.evidence import Cancel, Case, Effect, Entry, Final, Move, Order, Sent
from chaos.rules import RULES, Facts, Verdict, judge, judge_keys

JOB, OTHER, OWNER = UUID(int=1), UUID(int=2), UUID(int=9)
T0 = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=2)

State = tuple[str | None, int | None, int | None, datetime | None]
NOTHING: State = (None, None, None, None)


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


def move(
    seq: int, second: float, old: State, new: State, *, error: str | None = None, job: UUID = JOB, type: str = "loop"
) -> Move:
    return Move(job, seq, at(second), "k", None, type, *old, *new, error)


def honest(type: str = "loop") -> Case:
    """Made, claimed, lost with its worker, reclaimed, claimed anew and completed."""
    queued: State = ("queued", 0, 3, None)
    first: State = ("running", 1, 3, at(3))
    retrying: State = ("retrying", 1, 3, None)
    second: State = ("running", 2, 3, at(7))
    return Case(
        JOB,
        moves=[
            move(1, 0, NOTHING, queued, type=type),
            move(2, 1, queued, first, type=type),
            move(3, 4, first, retrying, error="lease ran out: the worker was lost or too slow", type=type),
            move(4, 5, retrying, second, type=type),
            move(5, 6, second, ("succeeded", 2, 3, None), type=type),
        ],
        entries=[
            Entry(JOB, 1, at(1.1), 1, "start"),
            Entry(JOB, 2, at(5.1), 2, "start"),
            Entry(JOB, 3, at(5.9), 2, "end"),
        ],
        effects=[Effect(JOB, 2)] if type == "settle" else [],
        sent=[Sent(JOB, "acknowledged", JOB, "producer-postgres")],
        final=Final(JOB, "succeeded"),
    )


def broken(case: Case, facts: Facts | None = None) -> list[str]:
    """The promises that the case breaks."""
    return [verdict.promise for verdict in judge([case], facts or Facts(), Counter()) if not verdict.holds]


@pytest.mark.parametrize("type", ["loop", "settle"])
def test_an_honest_history_passes(type: str) -> None:
    count: Counter[str] = Counter()
    verdicts = judge([honest(type)], Facts(), count)
    assert [v.examples for v in verdicts] == [[]] * len(RULES)
    assert (count["claim"], count["reclaim"], count["complete"], count["starts"]) == (2, 1, 1, 2)


def lose(case: Case) -> None:
    case.moves, case.entries, case.final = [], [], None


def vanish(case: Case) -> None:
    case.final = None


def stay_running(case: Case) -> None:
    case.moves.pop()
    case.final = Final(JOB, "running")


def come_from_nowhere(case: Case) -> None:
    case.sent = []


def be_made_though_refused(case: Case) -> None:
    case.sent = [Sent(JOB, "refused", None, "producer-api")]


def be_made_beside_its_answer(case: Case) -> None:
    case.sent = [Sent(JOB, "acknowledged", OTHER, "producer-api")]


def outlive_a_rollback(case: Case) -> None:
    case.sent = [Sent(JOB, "sent", None, "producer-transaction")]


def be_missing_after_a_commit(case: Case) -> None:
    lose(case)
    case.sent, case.orders = [Sent(JOB, "sent", None, "producer-transaction")], [Order(JOB)]


def be_accepted_twice(case: Case) -> None:
    last = case.moves[-1]
    case.moves.append(last._replace(seq=6, at=at(6.5)))


def leave_succeeded(case: Case) -> None:
    case.moves.append(move(6, 8, ("succeeded", 2, 3, None), ("dead", 2, 3, None), error="cancelled"))
    case.cancels, case.final = [Cancel(JOB)], Final(JOB, "dead")


def be_accepted_from_the_late_run(case: Case) -> None:
    """The first attempt's result, accepted while the second runs: what fencing is there to refuse."""
    case.entries = [*case.entries[:2], Entry(JOB, 3, at(5.8), 1, "end")]


def be_accepted_before_its_end(case: Case) -> None:
    case.entries[-1] = case.entries[-1]._replace(at=at(6.2))


def start_twice(case: Case) -> None:
    case.entries.append(Entry(JOB, 4, at(5.2), 2, "start"))


def start_unclaimed(case: Case) -> None:
    case.entries.append(Entry(JOB, 4, at(5.2), 3, "start"))


def fail_without_a_start(case: Case) -> None:
    first, retrying = case.moves[1], case.moves[2]
    case.moves[2] = retrying._replace(at=at(2), error="RuntimeError: broken")
    case.moves[1] = first
    case.entries = case.entries[1:]


def be_reclaimed_too_early(case: Case) -> None:
    case.moves[2] = case.moves[2]._replace(at=at(2.5))


def claim_without_counting(case: Case) -> None:
    case.moves[3] = case.moves[3]._replace(attempts=1)
    case.moves[4] = case.moves[4]._replace(old_attempts=1, attempts=1)


def change_unseen(case: Case) -> None:
    del case.moves[2]


def die_with_attempts_left(case: Case) -> None:
    case.moves[4] = case.moves[4]._replace(status="dead", error="RuntimeError: broken")
    case.final = Final(JOB, "dead")


def run_on_beside_its_successor(case: Case) -> None:
    """The first run fails by itself, is retried, and still writes: its lease had not run out."""
    case.moves[2] = case.moves[2]._replace(error="RuntimeError: broken", at=at(2))
    case.entries.append(Entry(JOB, 4, at(5.5), 1, "end"))


def be_cancelled_unasked(case: Case) -> None:
    case.moves[4] = case.moves[4]._replace(status="dead", error="cancelled")
    case.final = Final(JOB, "dead")


def be_deleted(case: Case) -> None:
    case.moves.append(move(6, 8, ("succeeded", 2, 3, None), NOTHING))
    case.final = None


FAULTS: list[tuple[Callable[[Case], None], str]] = [
    (lose, "no acknowledged job is lost"),
    (vanish, "no acknowledged job is lost"),
    (stay_running, "every job ends"),
    (come_from_nowhere, "made once, if it was sent"),
    (be_made_though_refused, "made once, if it was sent"),
    (be_made_beside_its_answer, "made once, if it was sent"),
    (outlive_a_rollback, "if and only if the transaction"),
    (be_missing_after_a_commit, "if and only if the transaction"),
    (be_accepted_twice, "one accepted result per job"),
    (leave_succeeded, "one accepted result per job"),
    (be_accepted_from_the_late_run, "from the run that holds the job"),
    (be_accepted_before_its_end, "from the run that holds the job"),
    (start_twice, "starts once for its claim"),
    (start_unclaimed, "starts once for its claim"),
    (fail_without_a_start, "claim without a start is explained"),
    (be_reclaimed_too_early, "a move of the diagram"),
    (claim_without_counting, "a move of the diagram"),
    (change_unseen, "a move of the diagram"),
    (die_with_attempts_left, "a move of the diagram"),
    (run_on_beside_its_successor, "beside its successor"),
    (be_cancelled_unasked, "only what an operator asked for"),
    (be_deleted, "a job goes with its owner"),
]


@pytest.mark.parametrize(("plant", "promise"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_a_planted_fault_breaks_its_promise(plant: Callable[[Case], None], promise: str) -> None:
    case = honest()
    plant(case)
    assert any(promise in each for each in broken(case))


def test_every_promise_has_a_fault_that_breaks_it() -> None:
    settled = honest("settle")
    settled.effects = []
    found = set(broken(settled))
    for plant, _ in FAULTS:
        case = honest()
        plant(case)
        found |= set(broken(case))
    assert {rule.promise for rule in RULES} == found


@pytest.mark.parametrize("attempts", [[], [1], [2, 2], [1, 2]])
def test_effects_of_no_run_or_of_another_one_are_found(attempts: list[int]) -> None:
    case = honest("settle")
    case.effects = [Effect(JOB, attempt) for attempt in attempts]
    assert any("effects in the completing transaction" in promise for promise in broken(case))


def test_a_job_may_go_with_its_owner_and_must() -> None:
    case = honest()
    case.moves = [each._replace(owner=OWNER) for each in case.moves]
    gone = replace(case, moves=[*case.moves, move(6, 8, ("succeeded", 2, 3, None), NOTHING)._replace(owner=OWNER)])
    gone.final = None
    assert broken(gone, Facts(frozenset({OWNER}))) == []
    assert any("goes with its owner" in promise for promise in broken(case, Facts(frozenset({OWNER}))))


def test_what_ran_on_after_its_lease_had_run_out_is_allowed_to_have() -> None:
    case = honest()
    case.entries.append(Entry(JOB, 4, at(5.5), 1, "end"))
    assert broken(case) == []


def keyed(*states: tuple[UUID, str | None]) -> Verdict:
    moves = [move(n, n, NOTHING, (status, 0, 3, None), job=job) for n, (job, status) in enumerate(states)]
    return judge_keys(moves)


def test_a_key_may_pass_on_when_its_job_is_dead_or_deleted() -> None:
    assert keyed((JOB, "queued"), (JOB, "dead"), (OTHER, "queued"), (OTHER, None), (JOB, "queued")).holds


@pytest.mark.parametrize("status", ["queued", "retrying", "running", "succeeded"])
def test_a_key_alive_twice_is_found(status: str) -> None:
    verdict = keyed((JOB, status), (OTHER, "queued"))
    assert (verdict.examined, verdict.broken) == (1, 1)
