"""What a worker reports meets what takes its job away: reclaim, cancel, the same report once more."""

import pytest

from tests.races.sessions import Meeting

# Each report of attempt 1, and the state in which it leaves the job when it is accepted.
REPORTS = {
    "complete_job": ("select id from public.complete_job(%s, 1)", "succeeded"),
    "complete_jobs": ("select id from public.complete_jobs(array[%s::uuid], '{1}')", "succeeded"),
    "fail_job": ("select id from public.fail_job(%s, 1, 'boom')", "retrying"),
    "extend_leases": ("select * from public.extend_leases(array[%s::uuid], '{1}')", "running"),
    "release_jobs": ("select id from public.release_jobs(array[%s::uuid], '{1}')", "queued"),
}
RECLAIM = "select id from public.reclaim_expired()"
CANCEL = "select id from public.cancel_job(%s)"
reports = pytest.mark.parametrize("report", REPORTS)
waits = pytest.mark.parametrize("report", [report for report in REPORTS if report != "extend_leases"])
ends = pytest.mark.parametrize("end", ["commit", "rollback"])


@reports
@ends
def test_a_report_under_way_is_passed_over_by_reclaim(met: Meeting, report: str, end: str) -> None:
    text, after = REPORTS[report]
    job = met.running(expired=True)
    assert met.first.do(text, job) == [(job,)]
    assert met.second.do(RECLAIM) == []
    met.first.end(end)
    met.second.commit()
    assert met.status(job) == (after if end == "commit" else "running")
    assert met.second.do(RECLAIM) == ([] if end == "commit" else [(job,)])


@waits
def test_a_report_that_waits_for_a_reclaim_is_refused(met: Meeting, report: str) -> None:
    job = met.running(expired=True)
    assert met.first.do(RECLAIM) == [(job,)]
    late = met.second.start_and_wait(REPORTS[report][0], job)
    met.first.commit()
    assert late.result(5) == []
    met.second.commit()
    assert met.status(job) == "retrying"


@waits
def test_a_report_that_waits_for_a_reclaim_taken_back_counts(met: Meeting, report: str) -> None:
    text, after = REPORTS[report]
    job = met.running(expired=True)
    met.first.do(RECLAIM)
    late = met.second.start_and_wait(text, job)
    met.first.rollback()
    assert late.result(5) == [(job,)]
    met.second.commit()
    assert met.status(job) == after


@waits
@ends
def test_a_report_that_waits_for_a_cancel_counts_only_if_that_is_taken_back(
    met: Meeting, report: str, end: str
) -> None:
    text, after = REPORTS[report]
    job = met.running()
    met.first.do(CANCEL, job)
    late = met.second.start_and_wait(text, job)
    met.first.end(end)
    assert late.result(5) == ([] if end == "commit" else [(job,)])
    met.second.commit()
    assert met.status(job) == ("dead" if end == "commit" else after)


@pytest.mark.parametrize("move", [RECLAIM, "select id from public.cancel_job((select id from public.marian_jobs))"])
@ends
def test_an_extension_waits_for_nothing_and_learns_of_the_move_when_that_is_committed(
    met: Meeting, move: str, end: str
) -> None:
    job = met.running(expired=True)
    met.first.do(move)
    assert met.second.do(REPORTS["extend_leases"][0], job) == [(job,)]
    met.second.commit()
    met.first.end(end)
    assert met.second.do(REPORTS["extend_leases"][0], job) == ([] if end == "commit" else [(job,)])


@reports
def test_a_cancel_that_waits_for_a_report_judges_what_that_left(met: Meeting, report: str) -> None:
    text, after = REPORTS[report]
    job = met.running()
    met.first.do(text, job)
    late = met.second.start_and_wait(CANCEL, job)
    met.first.commit()
    finished = after == "succeeded"
    assert late.result(5) == ([] if finished else [(job,)])
    met.second.commit()
    assert met.status(job) == ("succeeded" if finished else "dead")


@pytest.mark.parametrize("report", ["complete_job", "complete_jobs", "fail_job"])
def test_a_result_sent_twice_at_once_is_answered_twice_and_counts_once(met: Meeting, report: str) -> None:
    job = met.running()
    met.first.do(REPORTS[report][0], job)
    again = met.second.start_and_wait(REPORTS[report][0], job)
    met.first.commit()
    assert again.result(5) == [(job,)]
    met.second.commit()
    assert met.ask("select attempts, status from public.marian_jobs") == [(1, REPORTS[report][1])]


@pytest.mark.parametrize(("first", "second"), [("complete_job", "fail_job"), ("fail_job", "complete_job")])
def test_of_two_different_results_of_one_attempt_the_first_counts(met: Meeting, first: str, second: str) -> None:
    job = met.running()
    met.first.do(REPORTS[first][0], job)
    late = met.second.start_and_wait(REPORTS[second][0], job)
    met.first.commit()
    assert late.result(5) == []
    met.second.commit()
    assert met.status(job) == REPORTS[first][1]
