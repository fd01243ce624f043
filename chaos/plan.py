"""What happens when: events drawn from a seed, the same for the same seed, length and pace.

They are dealt from shuffled decks, so that every kind comes about equally often and none is missing from a short run.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

LEASE = 2.0  # seconds, of every worker
_CALM = 1.0  # at the end nothing new begins: what lasts must be over

# kind: how often it is in a deck, how long it lasts
_DECK: dict[str, tuple[int, tuple[float, float]]] = {
    "kill a worker": (3, (0, 0)),
    "stop a worker": (1, (0, 0)),
    "freeze a worker for less than a lease": (2, (0.3, 0.8 * LEASE)),
    "freeze a worker for more than a lease": (2, (1.5 * LEASE, 2.5 * LEASE)),
    "kill a producer": (1, (0, 0)),
    "restart the server, fast": (1, (0, 1.0)),
    "restart the server, immediate": (1, (0, 1.0)),
    "kill PostgREST": (1, (0, 1.0)),
    "terminate sessions": (2, (0, 0)),
    "cut connections": (2, (0, 0)),
    "lose replies": (4, (0.5, 2.0)),
    "delay": (2, (0.5, 2.0)),
    "half-open connections": (2, (0.5, 1.5 * LEASE)),
    "refuse connections": (1, (0.3, 1.5)),
    "jump a worker's clock": (2, (0, 0)),
    "delete an owner": (2, (0, 0)),
}
KINDS = tuple(_DECK)


@dataclass(frozen=True, slots=True)
class Event:
    """At `at` seconds something of a kind; `choice` picks among what is there (by remainder), `lasts` is in seconds."""

    at: float
    kind: str
    choice: int
    lasts: float


def plan(seed: int, seconds: float, gap: float) -> list[Event]:
    """The events of a run of that length, one every `gap` seconds on average."""
    chance = random.Random(f"plan/{seed}")
    events: list[Event] = []
    at = gap
    deck: list[str] = []
    while at < seconds - _CALM:
        if not deck:
            deck = [kind for kind, (count, _) in _DECK.items() for _ in range(count)]
            chance.shuffle(deck)
        kind = deck.pop()
        lasts = round(chance.uniform(*_DECK[kind][1]), 2)
        events.append(Event(round(at, 2), kind, chance.randrange(1_000_000), lasts))
        at += chance.uniform(0.5, 1.5) * gap
    return events


def described(events: Sequence[Event]) -> list[str]:
    """A line per event."""
    return [f"{e.at:8.2f} s  {e.kind}" + (f" ({e.lasts:g} s)" if e.lasts else "") for e in events]
