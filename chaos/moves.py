"""Which moves the diagram has, told from what a row was and what it became."""

from chaos.evidence import Move

DOOMED = "doomed"  # the reason that the handlers' `Dead` gives
RECLAIMED = "lease ran out"
CANCELLED = "cancelled"


def name(move: Move) -> str | None:
    """The move's name; None for one that the diagram does not have."""
    if move.status is None:
        return "delete"
    if move.old_status is None:
        return "enqueue" if (move.status, move.attempts, move.lease_until) == ("queued", 0, None) else None
    if (move.status == "running") != (move.lease_until is not None):
        return None
    judge = _MOVES.get((move.old_status, move.status))
    return judge(move) if judge else None


def _claim(move: Move) -> str | None:
    return "claim" if _attempts(move) == 1 and _budget(move) == 0 and _leased_ahead(move) else None


def _extend(move: Move) -> str | None:
    return "extend" if _unchanged(move) and _leased_ahead(move) else None


def _complete(move: Move) -> str | None:
    return "complete" if _unchanged(move) and move.error is None else None


def _try_again(move: Move) -> str | None:
    return _failed(move) if _unchanged(move) and not _used_up(move) else None


def _die(move: Move) -> str | None:
    if not _unchanged(move):
        return None
    if move.error == CANCELLED:
        return "cancel"
    return _failed(move) if _used_up(move) or move.error == DOOMED else None


def _failed(move: Move) -> str | None:
    if not (move.error or "").startswith(RECLAIMED):
        return "fail"
    assert move.old_lease is not None
    return "reclaim" if move.old_lease <= move.at else None


def _release(move: Move) -> str | None:
    return "release" if _attempts(move) == 0 and _budget(move) == 1 else None


def _cancel(move: Move) -> str | None:
    return "cancel" if _unchanged(move) and move.error == CANCELLED else None


def _retry(move: Move) -> str | None:
    return "retry" if _attempts(move) == 0 and not _used_up(move) else None


_MOVES = {
    ("queued", "running"): _claim,
    ("retrying", "running"): _claim,
    ("running", "running"): _extend,
    ("running", "succeeded"): _complete,
    ("running", "retrying"): _try_again,
    ("running", "dead"): _die,
    ("running", "queued"): _release,
    ("queued", "dead"): _cancel,
    ("retrying", "dead"): _cancel,
    ("dead", "queued"): _retry,
}


def _attempts(move: Move) -> int:
    return (move.attempts or 0) - (move.old_attempts or 0)


def _budget(move: Move) -> int:
    return (move.max_attempts or 0) - (move.old_max or 0)


def _unchanged(move: Move) -> bool:
    return _attempts(move) == 0 and _budget(move) == 0


def _used_up(move: Move) -> bool:
    return (move.attempts or 0) >= (move.max_attempts or 0)


def _leased_ahead(move: Move) -> bool:
    return move.lease_until is not None and move.lease_until > move.at
