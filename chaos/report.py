"""What a run prints at its end."""

from collections import Counter

from chaos.run import Outcome


def lines(outcome: Outcome) -> list[str]:
    """What was survived, what was done, and how each promise fared."""
    return [
        "",
        "survived",
        *_table(outcome.survived),
        "",
        "jobs sent, by what their producers know",
        *_table(outcome.fates),
        "",
        "moves of jobs, as the database saw them",
        *_table(outcome.moves),
        "",
        "promises",
        *_promises(outcome),
    ]


def _table(counts: Counter[str]) -> list[str]:
    return [f"  {name:48} {count:>9,}" for name, count in sorted(counts.items()) if count]


def _promises(outcome: Outcome) -> list[str]:
    told = []
    for verdict in outcome.verdicts:
        told.append(f"  {'held  ' if verdict.holds else 'BROKEN'}  {verdict.promise} ({verdict.examined:,} looked at)")
        told += [f"            {example}" for example in verdict.examples]
        if verdict.broken > len(verdict.examples):
            told.append(f"            … {verdict.broken:,} in all")
    return told
