"""Asks a process for its health, over HTTP."""

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.fleet import Fleet, wait_for


def served_at(fleet: Fleet, number: int = 0) -> str:
    """The URL that a process says it serves its health at, once it says so."""

    def said() -> "re.Match[str] | None":
        return re.search(r"health is served at (http://[^\s\"]+)", fleet.log(number))

    wait_for(said, 60, "the process says where its health is")
    found = said()
    assert found
    return found[1]


def probe(url: str, page: str) -> httpx.Response:
    return httpx.get(f"{url}{page}", timeout=15)


def status(url: str, page: str) -> int:
    return probe(url, page).status_code


def samples(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples of /metrics, by name and labels."""
    answer = probe(url, "/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(url: str, name: str, **labels: str) -> float | None:
    """One sample of /metrics."""
    return samples(url).get((name, frozenset(labels.items())))
