"""Claims meet claims, and whatever else touches the rows they want."""

import pytest

from tests.races.sessions import Meeting

CLAIM = "select id from public.claim_job()"
CANCEL = "select id from public.cancel_job(%s)"
RETRY = "select id from public.retry_job(%s)"
PRUNE = "select public.prune_jobs('0', '0')"
ends = pytest.mark.parametrize("end", ["commit", "rollback"])


@ends
def test_a_claim_passes_over_what_another_has_claimed_and_does_not_wait(met: Meeting, end: str) -> None:
    a, b = met.queued(priority=1), met.queued()
    assert met.first.do(CLAIM) == [(a,)]
    assert met.second.do(CLAIM) == [(b,)]
    met.first.end(end)
    met.second.commit()
    assert met.second.do(CLAIM) == ([] if end == "commit" else [(a,)])


@ends
def test_a_claim_of_a_limited_type_waits_for_the_other_and_keeps_to_the_limit(met: Meeting, end: str) -> None:
    met.ask("select public.limit_type('t', p_max_running => 1)")
    a, b = met.queued(priority=1), met.queued()
    assert met.first.do(CLAIM) == [(a,)]
    waiting = met.second.start_and_wait(CLAIM)
    met.first.end(end)
    assert waiting.result(5) == ([] if end == "commit" else [(a,)])
    met.second.commit()
    assert met.status(b) == "queued"


@ends
def test_a_claim_passes_over_what_is_being_cancelled(met: Meeting, end: str) -> None:
    job = met.queued()
    met.first.do(CANCEL, job)
    assert met.second.do(CLAIM) == []
    met.first.end(end)
    assert met.second.do(CLAIM) == ([] if end == "commit" else [(job,)])


@ends
def test_a_cancel_that_waits_for_a_claim_ends_the_job_all_the_same(met: Meeting, end: str) -> None:
    job = met.queued()
    met.first.do(CLAIM)
    waiting = met.second.start_and_wait(CANCEL, job)
    met.first.end(end)
    assert waiting.result(5) == [(job,)]
    met.second.commit()
    assert met.ask("select status, attempts from public.marian_jobs") == [("dead", int(end == "commit"))]
    assert met.second.do("select id from public.complete_job(%s, 1)", job) == []


@pytest.mark.parametrize("order", ["claim first", "prune first"])
def test_claim_and_prune_never_wait_for_each_other(met: Meeting, order: str) -> None:
    waiting, dead, done = met.queued(), met.dead(), met.queued(status="succeeded")
    calls = [(CLAIM, [(waiting,)]), (PRUNE, [(2,)])]
    for session, (text, expected) in zip(
        [met.first, met.second], calls[:: 1 if order == "claim first" else -1], strict=True
    ):
        assert session.do(text) == expected
    met.first.commit()
    met.second.commit()
    assert [met.status(id) for id in (waiting, dead, done)] == ["running", None, None]


@ends
def test_prune_passes_over_what_is_being_retried(met: Meeting, end: str) -> None:
    job = met.dead()
    met.first.do(RETRY, job)
    assert met.second.do(PRUNE) == [(0,)]
    met.first.end(end)
    met.second.commit()
    assert met.status(job) == ("queued" if end == "commit" else "dead")


@ends
def test_a_retry_that_waits_for_a_prune_finds_the_job_only_if_that_is_taken_back(met: Meeting, end: str) -> None:
    job = met.dead()
    met.first.do(PRUNE)
    waiting = met.second.start_and_wait(RETRY, job)
    met.first.end(end)
    assert waiting.result(5) == ([] if end == "commit" else [(job,)])
    met.second.commit()
    assert met.status(job) == (None if end == "commit" else "queued")


def test_a_job_retried_twice_at_once_is_queued_once(met: Meeting) -> None:
    job = met.dead(max_attempts=3)
    met.first.do(RETRY, job)
    waiting = met.second.start_and_wait(RETRY, job)
    met.first.commit()
    assert waiting.result(5) == []
    assert met.ask("select max_attempts from public.marian_jobs") == [(4,)]


def test_reclaims_share_the_expired_leases_and_do_not_wait(met: Meeting) -> None:
    jobs = {met.running(expired=True) for _ in range(4)}
    (first,), (second,) = met.first.do("select id from public.reclaim_expired(2)")
    rest = met.second.do("select id from public.reclaim_expired()")
    assert {first, second, *(id for (id,) in rest)} == jobs
    assert len(rest) == 2
