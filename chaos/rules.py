"""What must hold for every job, whatever has happened: each rule reads one job's case and names what breaks it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from chaos import moves
from chaos.evidence import Case, Entry, Move

FINISHED = ("succeeded", "dead")
UNREACHABLE = ("LedgerUnreachable", "ProcessLost")  # what a handler's error begins with that never wrote its line
EXITS = frozenset({"complete", "fail", "reclaim", "release", "cancel", "delete"})


@dataclass(frozen=True)
class Facts:
    """What is known beside the jobs: whose accounts were deleted, and whether finished jobs were pruned."""

    deleted: frozenset[UUID] = frozenset()
    pruned: bool = False


@dataclass(frozen=True)
class Rule:
    """A promise, and what breaks it in a case."""

    promise: str
    breaks: Callable[[Case, Facts], Iterator[str]]


@dataclass
class Verdict:
    """How a promise fared: how many cases were looked at, what broke it (the first few), and how often."""

    promise: str
    examined: int = 0
    broken: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing broke it."""
        return self.broken == 0

    def add(self, fault: str) -> None:
        """Takes a fault; the first ten are kept."""
        self.broken += 1
        if len(self.examples) < 10:
            self.examples.append(fault)


def judge(cases: Iterable[Case], facts: Facts, count: Counter[str]) -> list[Verdict]:
    """A verdict per rule; `count` is told of every move by its name, and of starts."""
    verdicts = [Verdict(rule.promise) for rule in RULES]
    for case in cases:
        count["jobs"] += bool(case.moves)
        count.update(moves.name(move) or "illegal" for move in case.moves)
        count["starts"] += sum(entry.what == "start" for entry in case.entries)
        for rule, verdict in zip(RULES, verdicts, strict=True):
            verdict.examined += 1
            for fault in rule.breaks(case, facts):
                verdict.add(f"job {case.job}: {fault}")
    return verdicts


def judge_keys(by_key: Iterable[Move]) -> Verdict:
    """That at no time two jobs of one key were alive; the moves come in the order of keys, then of time."""
    verdict = Verdict("one live job per key at any time")
    key, alive = None, set[UUID]()
    for move in by_key:
        if move.key != key:
            key, alive = move.key, set()
            verdict.examined += 1
        if move.status in (None, "dead"):
            alive.discard(move.job)
        else:
            alive.add(move.job)
        if len(alive) > 1:
            verdict.add(f"key {key!r}: alive at once: {', '.join(sorted(map(str, alive)))}")
    return verdict


def _ends(case: Case, _: Facts) -> Iterator[str]:
    if case.final is not None and case.final.status not in FINISHED:
        yield f"is still {case.final.status}"


def _is_not_lost(case: Case, _: Facts) -> Iterator[str]:
    for sent in case.sent:
        if sent.fate == "acknowledged" and sent.answer == case.job and not case.moves:
            yield f"acknowledged to {sent.by}, and never made"
    gone = bool(case.moves) and case.moves[-1].status is None
    if case.moves and case.final is None and not gone:
        yield "made, never deleted, and not there"
    if case.final is not None and gone:
        yield "deleted, and there"


def _was_sent(case: Case, _: Facts) -> Iterator[str]:
    if case.moves and not case.sent:
        yield "nobody sent it"
    inserts = sum(move.old_status is None for move in case.moves)
    if inserts > 1:
        yield f"made {inserts} times"
    gone = bool(case.moves) and case.moves[-1].status is None
    for sent in case.sent:
        # One that was made by a first try, and whose owner went before the second, is refused at the second.
        if sent.fate in ("refused", "rolled back") and case.moves and not gone:
            yield f"{sent.fate}, and made all the same"
        if sent.fate == "acknowledged" and sent.answer != case.job and case.moves:
            yield "another job had its key, and it was made all the same"


def _goes_with_its_transaction(case: Case, _: Facts) -> Iterator[str]:
    if case.orders and not case.moves:
        yield "its transaction was committed, and it was not made"
    if case.moves and not case.orders and any("transaction" in sent.by for sent in case.sent):
        yield "it was made, and its transaction was not committed"


def _follows_the_diagram(case: Case, _: Facts) -> Iterator[str]:
    before: Move | None = None
    for move in case.moves:
        if before is not None and (move.old_status, move.old_attempts, move.old_max, move.old_lease) != (
            (before.status, before.attempts, before.max_attempts, before.lease_until)
        ):
            yield f"between moves {before.seq} and {move.seq} it changed unseen"
        if before is None and move.old_status is not None:
            yield f"its first move is from {move.old_status}"
        if moves.name(move) is None:
            yield (
                f"no such move: {move.old_status} ({move.old_attempts} of {move.old_max}) to "
                f"{move.status} ({move.attempts} of {move.max_attempts}), error {move.error!r}"
            )
        before = move


def _succeeds_once(case: Case, _: Facts) -> Iterator[str]:
    accepted = [move.attempts for move in case.moves if move.status == "succeeded"]
    if len(accepted) > 1:
        yield f"{len(accepted)} accepted results, of attempts {accepted}"
    after = [move.status for move in case.moves if move.old_status == "succeeded" and move.status is not None]
    if after:
        yield f"left succeeded for {after[0]}"


def _succeeds_by_its_own_run(case: Case, _: Facts) -> Iterator[str]:
    for move in case.moves:
        if moves.name(move) != "complete":
            continue
        ended = any(e.what == "end" and e.attempt == move.attempts and e.at <= move.at for e in case.entries)
        settled = any(effect.attempt == move.attempts for effect in case.effects)
        if not (settled if move.type == "settle" else ended):
            yield f"attempt {move.attempts} was accepted before its run had ended"


def _starts_are_claimed(case: Case, _: Facts) -> Iterator[str]:
    claimed = {move.attempts: move for move in case.moves if moves.name(move) == "claim"}
    starts = Counter(entry.attempt for entry in case.entries if entry.what == "start")
    for entry in case.entries:
        claim = claimed.get(entry.attempt)
        if claim is None or entry.at < claim.at:
            yield f"attempt {entry.attempt} wrote {entry.what!r} without having claimed it"
    for attempt, count in starts.items():
        if count > 1:
            yield f"attempt {attempt} started {count} times"


def _unstarted_are_explained(case: Case, _: Facts) -> Iterator[str]:
    started = {entry.attempt for entry in case.entries if entry.what == "start"}
    attempt = None
    for move in case.moves:
        what = moves.name(move)
        if what == "claim":
            attempt = move.attempts
        elif what in EXITS and attempt is not None:
            unseen = what == "complete" or (what == "fail" and not (move.error or "").startswith(UNREACHABLE))
            if attempt not in started and unseen:
                yield f"attempt {attempt} ended by {what} ({move.error!r}) and had never started"
            attempt = None


def _effects_match(case: Case, _: Facts) -> Iterator[str]:
    effects = [effect.attempt for effect in case.effects]
    accepted = [move.attempts for move in case.moves if move.type == "settle" and moves.name(move) == "complete"]
    if effects != accepted:
        yield f"effects of attempts {effects}, accepted results of attempts {accepted}"


def _runs_alone(case: Case, _: Facts) -> Iterator[str]:
    exits: dict[int | None, str] = {}
    for move in case.moves:
        if move.old_status == "running" and move.status != "running":
            exits[move.old_attempts] = moves.name(move) or "?"
    starts = {e.attempt: e for e in case.entries if e.what == "start"}
    for entry in case.entries:
        later = _first_after(starts, entry.attempt)
        # Its lease ran out, or an operator took it away: it may have lived on, unheard. Else it was its own end.
        if later is not None and entry.at > later.at and exits.get(entry.attempt) not in ("reclaim", "cancel"):
            yield (
                f"attempt {entry.attempt} wrote {entry.what!r} after attempt {later.attempt} had started, "
                f"and its lease had not run out ({exits.get(entry.attempt)})"
            )


def _first_after(starts: dict[int, Entry], attempt: int) -> Entry | None:
    later = [number for number in starts if number > attempt]
    return starts[min(later)] if later else None


def _goes_with_its_owner(case: Case, facts: Facts) -> Iterator[str]:
    if not case.moves:
        return
    last = case.moves[-1]
    if case.final is not None and last.owner in facts.deleted:
        yield "its owner is deleted, and it is there"
    if last.status is None and last.owner not in facts.deleted and not (facts.pruned and last.old_status in FINISHED):
        yield f"deleted as {last.old_status}, and its owner is there"


def _is_cancelled_by_request(case: Case, _: Facts) -> Iterator[str]:
    if not case.cancels and any(moves.name(move) == "cancel" for move in case.moves):
        yield "cancelled, and nobody had asked"


RULES = (
    Rule("every job ends as succeeded or dead", _ends),
    Rule("no acknowledged job is lost", _is_not_lost),
    Rule("a job is made once, if it was sent, and never if that was refused or rolled back", _was_sent),
    Rule("a job exists if and only if the transaction that enqueued it was committed", _goes_with_its_transaction),
    Rule("every committed change is a move of the diagram", _follows_the_diagram),
    Rule("one accepted result per job, and nothing after it", _succeeds_once),
    Rule("a result is accepted from the run that holds the job, when it has ended", _succeeds_by_its_own_run),
    Rule("a run starts once for its claim, and never without one", _starts_are_claimed),
    Rule("a claim without a start is explained: worker lost, stopped, or ledger away", _unstarted_are_explained),
    Rule("effects in the completing transaction are there exactly once, with the result", _effects_match),
    Rule("no run goes on beside its successor while it holds the lease", _runs_alone),
    Rule("a job goes with its owner, and not otherwise", _goes_with_its_owner),
    Rule("only what an operator asked for is cancelled", _is_cancelled_by_request),
)
