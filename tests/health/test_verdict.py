"""Whether a worker lives and is ready, decided from what is known of it; and what an address is."""

import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from marian_jobs import MarianError, MemoryStore, Worker
from marian_jobs.health.address import bind, url_of
from marian_jobs.health.verdict import judge_life, judge_readiness
from marian_jobs.worker.vitals import Vitals

WELL = Vitals(
    answered_at=100.0,
    asked_at=None,
    longest_silence=timedelta(seconds=25),
    running=0,
    concurrency=10,
    abandoned=0,
    is_stopping=False,
)


@pytest.mark.parametrize(
    ("vitals", "now", "reason"),
    [
        (WELL, 100.0, None),
        (WELL, 125.0, None),
        (WELL, 126.0, "the store's last answer was 26.0 s ago"),
        (replace(WELL, answered_at=None), 100.0, "the store has not answered yet"),
        (replace(WELL, answered_at=None, asked_at=99.0), 101.0, "the store has not answered yet"),
        (replace(WELL, answered_at=None, asked_at=99.0), 105.0, "the store has not answered for 6.0 s"),
        (replace(WELL, asked_at=101.0), 106.0, None),
        (replace(WELL, asked_at=101.0), 107.0, "the store has not answered for 6.0 s"),
        (replace(WELL, is_stopping=True), 100.0, "the worker is stopping"),
    ],
)
def test_ready_is_who_had_an_answer_of_late(vitals: Vitals, now: float, reason: str | None) -> None:
    verdict = judge_readiness(vitals, now)
    assert (verdict.well, verdict.reason) == (reason is None, reason)


def test_alive_is_whose_loop_turns() -> None:
    assert judge_life(100.0, 130.0, timedelta(seconds=30)).well
    verdict = judge_life(100.0, 131.0, timedelta(seconds=30))
    assert verdict.reason == "the event loop has not turned for 31.0 s: a handler blocks it"


def test_a_silence_is_suspicious_after_two_of_the_longest_pauses() -> None:
    def silence(**options: timedelta) -> float:
        return Worker(MemoryStore(), **options).vitals().longest_silence.total_seconds()  # type: ignore[arg-type]

    assert silence() == 25
    assert silence(poll=timedelta(seconds=20)) == 45
    assert silence(lease=timedelta(minutes=3)) == 125  # a full worker hears of the store by its leases alone


@pytest.mark.parametrize("address", ["", "x", "http://x:1", ":", ":80", "1.2.3.4:", "99999", "-1", "٣", "unix:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="health: "):
        bind(address)


@pytest.mark.parametrize("address", ["0", "127.0.0.1:0"])
def test_a_port_is_bound_at_once_and_has_a_url(address: str) -> None:
    with bind(address) as listening:
        port = int(url_of(listening).removeprefix("http://127.0.0.1:"))
        socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(MarianError, match=rf"cannot listen on 127.0.0.1:{port}: .*in use"):
            bind(f"127.0.0.1:{port}")


def test_a_path_that_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    path = os.path.relpath(tmp_path / "s")  # a socket's path must be short
    for _ in range(2):
        with bind(f"unix:{path}") as listening:
            assert url_of(listening) == f"unix:{path}"


def test_a_path_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    with pytest.raises(MarianError, match=r"cannot listen on unix:.*No such file"):
        bind("unix:/nowhere/s")
