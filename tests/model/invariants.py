"""What holds after every step whatever the step was: read from the rows and the answers alone, not from the oracle."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from marian_jobs import Job, Status
from marian_jobs.job import RUNNABLE, Held

Rows = Mapping[UUID, Job]

FIXED = ("id", "user_id", "type", "payload", "idempotency_key", "priority", "created_at")


def check_rows(rows: Rows) -> None:
    """One live row per key; running if and only if leased; never more attempts than the budget."""
    keys = [job.idempotency_key for job in rows.values() if job.idempotency_key and job.status is not Status.DEAD]
    assert sorted(set(keys)) == sorted(keys)
    for job in rows.values():
        assert (job.status is Status.RUNNING) == (job.lease_until is not None)
        assert job.attempts <= job.max_attempts
        assert job.status not in RUNNABLE or job.attempts < job.max_attempts


def check_moves(call: str, before: Rows, after: Rows) -> None:
    """Attempts grow by claims alone and by one; finished is finished; a budget grows by `release` and `retry` alone."""
    may_claim, may_end = call in ("claim", "poll"), call == "prune"
    assert may_end or before.keys() <= after.keys()
    assert all(before[id].status in (Status.SUCCEEDED, Status.DEAD) for id in before.keys() - after.keys())
    for id in before.keys() & after.keys():
        was, now = before[id], after[id]
        assert [getattr(was, name) for name in FIXED] == [getattr(now, name) for name in FIXED]
        assert now.attempts - was.attempts in ((0, 1) if may_claim else (0,))
        assert was.status is not Status.SUCCEEDED or now == was
        assert was.status is not Status.DEAD or now == was or call == "retry"
        assert now.max_attempts == was.max_attempts or call in ("release", "retry")
        assert now == was or now.updated_at > was.updated_at


def changed(before: Rows, after: Rows) -> set[UUID]:
    """The jobs made, moved or deleted by a step."""
    return {id for id in before.keys() | after.keys() if before.get(id) != after.get(id)}


class Ledger:
    """What workers were told: each token once, and of each at most one outcome that counted."""

    def __init__(self) -> None:
        self._issued: set[Held] = set()
        self._outcomes: defaultdict[Held, set[str]] = defaultdict(set)
        self._effects: defaultdict[Held, int] = defaultdict(int)

    def issue(self, tokens: Iterable[Held]) -> None:
        """Notes a claim's answer: no token is handed out twice."""
        for token in tokens:
            assert token not in self._issued
            self._issued.add(token)

    def accept(self, outcome: str, tokens: Iterable[Held], moved: set[UUID]) -> None:
        """Notes accepted reports: accepted again a report may be, but with no other outcome, and without effect."""
        for token in tokens:
            self._outcomes[token].add(outcome)
            self._effects[token] += token.id in moved
            assert len(self._outcomes[token]) == 1
            assert self._effects[token] <= 1

    def forget(self, ids: set[UUID]) -> None:
        """Deleted rows: a job made anew under an old id counts from one again."""
        self._issued = {token for token in self._issued if token.id not in ids}
        for token in [token for token in self._outcomes if token.id in ids]:
            del self._outcomes[token], self._effects[token]
