"""An account is deleted, and its jobs with it, while something is done with them."""

import psycopg
import pytest

from tests.races.sessions import Meeting

DELETE = "delete from auth.users where id = %s"
ENQUEUE = "select id from public.enqueue_job('t', p_user_id => %s)"
MOVES = {
    "cancel": "select id from public.cancel_job(%s)",
    "complete": "select id from public.complete_job(%s, 1)",
    "fail": "select id from public.fail_job(%s, 1, 'boom')",
    "extend": "select * from public.extend_leases(array[%s::uuid], '{1}')",
    "release": "select id from public.release_jobs(array[%s::uuid], '{1}')",
}
ends = pytest.mark.parametrize("end", ["commit", "rollback"])


@ends
@pytest.mark.parametrize("move", [move for move in MOVES if move != "extend"])
def test_a_move_that_waits_for_the_deletion_finds_the_job_only_if_that_is_taken_back(
    met: Meeting, move: str, end: str
) -> None:
    user = met.user()
    job = met.running(user_id=user)
    met.first.do(DELETE, user)
    waiting = met.second.start_and_wait(MOVES[move], job)
    met.first.end(end)
    assert waiting.result(5) == ([] if end == "commit" else [(job,)])


@pytest.mark.parametrize("move", MOVES)
def test_a_deletion_that_waits_for_a_move_takes_the_job_along(met: Meeting, move: str) -> None:
    user = met.user()
    job = met.running(user_id=user)
    met.first.do(MOVES[move], job)
    waiting = met.second.start_and_wait(DELETE, user)
    met.first.commit()
    waiting.result(5)
    met.second.commit()
    assert met.status(job) is None


@ends
@pytest.mark.parametrize("function", ["claim_job", "reclaim_expired"])
def test_claims_and_reclaims_pass_over_the_jobs_of_who_is_being_deleted(met: Meeting, function: str, end: str) -> None:
    user = met.user()
    job = met.queued(user_id=user) if function == "claim_job" else met.running(user_id=user, expired=True)
    met.first.do(DELETE, user)
    assert met.second.do(f"select id from public.{function}()") == []
    met.first.end(end)
    assert met.second.do(f"select id from public.{function}()") == ([] if end == "commit" else [(job,)])


def test_a_job_enqueued_while_its_owner_is_being_deleted_is_refused(met: Meeting) -> None:
    user = met.user()
    met.first.do(DELETE, user)
    waiting = met.second.start_and_wait(ENQUEUE, user)
    met.first.commit()
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        waiting.result(5)
    met.second.rollback()
    assert met.ask("select 1 from public.marian_jobs") == []


def test_a_deletion_takes_along_what_was_being_enqueued(met: Meeting) -> None:
    user = met.user()
    met.first.do(ENQUEUE, user)
    waiting = met.second.start_and_wait(DELETE, user)
    met.first.commit()
    waiting.result(5)
    met.second.commit()
    assert met.ask("select 1 from public.marian_jobs") == []
