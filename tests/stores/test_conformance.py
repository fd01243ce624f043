"""What every store answers, word for word the same: cases K04, K06, K10, K11, K17-K21, K24, K26, K32, K43 and kin."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from marian_jobs import Job, JobFilter, KeyConflict, RetryRefused, Status, Store, new_job
from marian_jobs.job import Enqueued, Held
from marian_jobs.store import Failure, Limit, TypeLimit

LEASE = timedelta(seconds=30)
SHORT = timedelta(milliseconds=30)


async def put(store: Store, type: str = "t", payload: dict[str, object] | None = None, **options: object) -> Enqueued:
    return (await store.enqueue([new_job(type, payload, **options)]))[0]  # type: ignore[arg-type]


async def claim(store: Store, lease: timedelta = LEASE) -> Job:
    (job,) = await store.claim(1, None, lease)
    return job


async def reclaim_when_over(store: Store) -> list[Job]:
    await asyncio.sleep(SHORT.total_seconds() * 1.5)
    return await store.reclaim()


async def fail(
    store: Store, job: Job, error: str = "boom", *, dead: bool = False, after: timedelta | None = None
) -> Job:
    (failed,) = await store.fail([Failure(job.id, job.attempts, error, after, dead)])
    return failed


class TestEnqueue:
    async def test_a_new_job_is_queued_due_and_created(self, store: Store) -> None:
        job = await put(store, "embed", {"document": 1})
        assert job.created
        assert (job.status, job.attempts, job.max_attempts, job.priority) == (Status.QUEUED, 0, 3, 0)
        assert job.payload == {"document": 1}
        assert (job.lease_until, job.error, job.user_id, job.idempotency_key) == (None, None, None, None)

    async def test_the_store_remembers_what_it_answered(self, store: Store) -> None:
        job = await put(store, "embed", {"document": 1}, key="k", priority=5, max_attempts=7)
        found = await store.get(job.id)
        assert found is not None
        assert [getattr(found, name) for name in Job.__slots__] == [getattr(job, name) for name in Job.__slots__]

    async def test_a_live_key_returns_its_row_unchanged(self, store: Store) -> None:
        first = await put(store, payload={"v": 1}, key="k")
        again = await put(store, payload={"v": 2}, key="k", priority=9)
        assert (again.id, again.created, again.payload, again.priority) == (first.id, False, {"v": 1}, 0)

    async def test_a_key_stays_live_through_every_state_but_dead(self, store: Store) -> None:
        first = await put(store, key="k")
        job = await claim(store)
        assert (await put(store, key="k")).id == first.id
        await fail(store, job, after=timedelta(0))
        assert (await put(store, key="k")).id == first.id
        job = await claim(store)
        await store.complete([job.held])
        assert (await put(store, key="k")).id == first.id

    async def test_a_key_whose_jobs_are_dead_or_pruned_makes_a_new_row(self, store: Store) -> None:
        first = await put(store, key="k")
        await fail(store, await claim(store), dead=True)
        second = await put(store, key="k")
        assert second.created
        assert second.id != first.id
        job = await claim(store)
        await store.complete([job.held])
        assert await store.prune(timedelta(0), None) == 1
        third = await put(store, key="k")
        assert third.created
        assert third.id not in {first.id, second.id}

    async def test_twenty_at_once_make_one_row_and_all_get_its_id(self, store: Store) -> None:
        for turn in range(5):
            jobs = await asyncio.gather(*(put(store, key=f"race {turn}") for _ in range(20)))
            assert len({job.id for job in jobs}) == 1
            assert sum(job.created for job in jobs) == 1

    async def test_jobs_without_a_key_are_never_the_same(self, store: Store) -> None:
        assert (await put(store)).id != (await put(store)).id

    async def test_a_resent_call_finds_its_own_row(self, store: Store) -> None:
        new = new_job("t", {"n": 1}, key="k")
        (first,) = await store.enqueue([new])
        (again,) = await store.enqueue([new])
        assert first == again
        assert len(await store.find(JobFilter())) == 1

    async def test_a_batch_answers_in_order_and_folds_its_own_duplicates(self, store: Store) -> None:
        jobs = [new_job("t", {"n": n}, key=key) for n, key in enumerate(["b", None, "a", "b", None])]
        answers = await store.enqueue(jobs)
        assert [a.created for a in answers] == [True, True, True, False, True]
        assert answers[3].id == answers[0].id
        assert [a.payload["n"] for a in answers] == [0, 1, 2, 0, 4]

    async def test_a_batch_runs_in_the_order_it_was_given(self, store: Store) -> None:
        await store.enqueue([new_job("t", {"n": n}) for n in range(20)])
        claimed = await store.claim(20, ["t"], LEASE)
        assert [job.payload["n"] for job in claimed] == list(range(20))

    async def test_the_null_owner_shares_a_key_only_with_itself(self, store: Store) -> None:
        first = await put(store, key="order-1")
        assert (await put(store, key="order-1")).id == first.id
        with pytest.raises(KeyConflict) as refusal:
            await store.enqueue([new_job("t", key="order-1", user_id=uuid4())])
        assert str(first.id) not in str(refusal.value)

    async def test_a_refused_batch_leaves_nothing(self, store: Store) -> None:
        await put(store, key="order-1")
        with pytest.raises(KeyConflict):
            await store.enqueue([new_job("t"), new_job("t", key="order-1", user_id=uuid4())])
        assert len(await store.find(JobFilter())) == 1

    async def test_integers_of_any_size_and_emoji_come_back_equal(self, store: Store) -> None:
        payload = {"n": 2**53 + 1, "m": 2**63 + 1, "k": 10**40, "e": "🦆", "f": 0.1, "deep": [{"a": [1, None, True]}]}
        await put(store, payload=payload)
        assert (await claim(store)).payload == payload

    async def test_a_delay_counts_from_the_stores_now(self, store: Store) -> None:
        job = await put(store, delay=timedelta(hours=1))
        assert timedelta(minutes=59) < job.run_after - job.created_at <= timedelta(hours=1)
        assert await store.claim(1, None, LEASE) == []

    async def test_one_instant_is_one_instant_in_every_zone(self, store: Store) -> None:
        due = datetime(2030, 1, 1, tzinfo=UTC)
        assert (await put(store, run_after=due)).run_after == due


class TestClaim:
    async def test_a_claim_leases_and_counts_the_attempt(self, store: Store) -> None:
        job = await put(store)
        claimed = await claim(store)
        assert (claimed.id, claimed.status, claimed.attempts) == (job.id, Status.RUNNING, 1)
        assert claimed.lease_until == claimed.updated_at + LEASE
        assert await store.claim(1, None, LEASE) == []

    async def test_the_order_is_priority_then_due_then_made(self, store: Store) -> None:
        past = datetime(2020, 1, 1, tzinfo=UTC)
        for name, priority, due in [
            ("zero", 0, past), ("five", 5, past), ("minus", -5, past), ("top", 2**31 - 1, past),
            ("five later", 5, past + timedelta(seconds=1)), ("five again", 5, past),
        ]:  # fmt: skip
            await put(store, payload={"name": name}, priority=priority, run_after=due)
        order = [(await claim(store)).payload["name"] for _ in range(6)]
        assert order == ["top", "five", "five again", "five later", "zero", "minus"]

    async def test_the_order_holds_across_types(self, store: Store) -> None:
        past = datetime(2020, 1, 1, tzinfo=UTC)
        for n in range(12):
            await put(store, f"t{n % 3}", {"n": n}, run_after=past + timedelta(seconds=n // 2), priority=n // 6)
        claimed = await store.claim(20, ["t0", "t1", "t2", "t0", "absent"], LEASE)
        assert [job.payload["n"] for job in claimed] == [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5]

    async def test_only_the_given_types_are_touched(self, store: Store) -> None:
        await put(store, "b")
        assert await store.claim(5, ["a"], LEASE) == []
        (left,) = await store.find(JobFilter())
        assert (left.status, left.attempts) == (Status.QUEUED, 0)

    async def test_no_types_means_no_job(self, store: Store) -> None:
        await put(store)
        assert await store.claim(5, [], LEASE) == []

    async def test_a_better_priority_in_the_future_does_not_hide_what_is_due(self, store: Store) -> None:
        await put(store, priority=9, delay=timedelta(hours=1))
        due = await put(store)
        assert (await claim(store)).id == due.id


class TestFencing:
    async def test_a_late_worker_is_refused_four_times_and_changes_nothing(self, store: Store) -> None:
        await put(store, max_attempts=5)
        first = await claim(store, SHORT)
        (reclaimed,) = await reclaim_when_over(store)
        assert (reclaimed.status, reclaimed.attempts) == (Status.RETRYING, 1)
        second = await claim(store)
        assert second.attempts == 2
        assert await store.complete([first.held]) == set()
        assert await store.fail([Failure(*first.held, "late")]) == []
        assert await store.extend([first.held], LEASE) == set()
        assert await store.release([first.held]) == []
        assert await store.get(first.id) == second
        assert await store.complete([second.held]) == {second.held}

    async def test_a_reclaimed_job_refuses_its_late_worker_before_anyone_claims_it(self, store: Store) -> None:
        await put(store)
        first = await claim(store, SHORT)
        await reclaim_when_over(store)
        before = await store.get(first.id)
        assert await store.complete([first.held]) == set()
        assert await store.fail([Failure(*first.held, "late")]) == []
        assert await store.release([first.held]) == []
        assert await store.get(first.id) == before

    async def test_attempts_never_repeat_over_three_claims(self, store: Store) -> None:
        await put(store)
        held = []
        for _ in range(3):
            held.append((await claim(store, SHORT)).held)
            await reclaim_when_over(store)
        assert [token.attempt for token in held] == [1, 2, 3]
        assert await store.complete(held) == set()

    async def test_a_completion_after_the_lease_but_before_a_reclaim_counts(self, store: Store) -> None:
        await put(store)
        job = await claim(store, SHORT)
        await asyncio.sleep(SHORT.total_seconds() * 2)
        assert await store.complete([job.held]) == {job.held}

    async def test_a_batch_is_judged_job_by_job(self, store: Store) -> None:
        await store.enqueue([new_job("t") for _ in range(3)])
        a, b, c = await store.claim(3, None, LEASE)
        sent = [a.held, Held(b.id, 7), c.held, Held(uuid4(), 1)]
        assert await store.complete(sent) == {a.held, c.held}
        left = await store.get(b.id)
        assert left == b


class TestResults:
    async def test_complete_ends_the_job_and_clears_its_error(self, store: Store) -> None:
        await put(store)
        await fail(store, await claim(store), after=timedelta(0))
        job = await claim(store)
        assert job.error == "boom"
        await store.complete([job.held])
        done = await store.get(job.id)
        assert done is not None
        assert (done.status, done.lease_until, done.error, done.attempts) == (Status.SUCCEEDED, None, None, 2)

    async def test_a_resent_completion_answers_the_same_and_a_later_failure_is_refused(self, store: Store) -> None:
        await put(store)
        job = await claim(store)
        assert await store.complete([job.held]) == {job.held}
        done = await store.get(job.id)
        assert await store.complete([job.held, job.held]) == {job.held}
        assert await store.fail([Failure(*job.held, "late")]) == []
        assert await store.get(job.id) == done

    async def test_a_resent_failure_counts_once(self, store: Store) -> None:
        await put(store)
        job = await claim(store)
        first = await fail(store, job)
        again = await fail(store, job)
        assert first == again
        assert again.attempts == 1

    async def test_a_failure_waits_for_its_backoff(self, store: Store) -> None:
        await put(store)
        failed = await fail(store, await claim(store))
        assert (failed.status, failed.error, failed.lease_until) == (Status.RETRYING, "boom", None)
        assert failed.run_after == failed.updated_at + timedelta(seconds=1)

    @pytest.mark.parametrize("budget", [1, 2, 3])
    async def test_an_always_failing_job_starts_exactly_max_attempts_times(self, store: Store, budget: int) -> None:
        await put(store, max_attempts=budget)
        starts = 0
        while jobs := await store.claim(1, None, LEASE):
            starts += 1
            last = await fail(store, jobs[0], after=timedelta(0))
        assert (starts, last.status, last.attempts) == (budget, Status.DEAD, budget)

    async def test_a_permanent_error_ends_the_job_at_once(self, store: Store) -> None:
        await put(store, max_attempts=5)
        failed = await fail(store, await claim(store), "bad input", dead=True)
        assert (failed.status, failed.attempts, failed.error) == (Status.DEAD, 1, "bad input")

    async def test_a_long_error_keeps_head_and_tail(self, store: Store) -> None:
        await put(store)
        failed = await fail(store, await claim(store), "head" + "x" * 100_000 + "tail")
        assert failed.error is not None
        assert len(failed.error) == 8192
        assert (failed.error[:4], failed.error[-4:]) == ("head", "tail")
        assert await store.fail([Failure(failed.id, 1, "head" + "x" * 100_000 + "tail")]) == [failed]


class TestLease:
    async def test_an_extension_holds_the_job(self, store: Store) -> None:
        await put(store)
        job = await claim(store, SHORT)
        assert await store.extend([job.held], LEASE) == {job.held}
        assert await reclaim_when_over(store) == []

    async def test_reclaim_ends_a_job_without_budget_and_frees_its_key(self, store: Store) -> None:
        first = await put(store, key="k", max_attempts=1)
        await claim(store, SHORT)
        (reclaimed,) = await reclaim_when_over(store)
        assert (reclaimed.status, reclaimed.lease_until) == (Status.DEAD, None)
        assert reclaimed.error == "lease ran out: the worker was lost or too slow"
        assert (await put(store, key="k")).id != first.id

    async def test_a_job_that_kills_its_workers_never_loops(self, store: Store) -> None:
        await put(store, max_attempts=3)
        starts = 0
        while await store.claim(1, None, SHORT):
            starts += 1
            await reclaim_when_over(store)
        assert starts == 3

    async def test_release_costs_no_attempt(self, store: Store) -> None:
        await put(store, max_attempts=2)
        job = await claim(store)
        (released,) = await store.release([job.held])
        assert (released.status, released.attempts, released.max_attempts) == (Status.QUEUED, 1, 3)
        assert released.run_after == released.updated_at
        assert (await claim(store)).attempts == 2

    async def test_release_may_wait(self, store: Store) -> None:
        await put(store)
        job = await claim(store)
        (released,) = await store.release([job.held], timedelta(minutes=5))
        assert released.run_after == released.updated_at + timedelta(minutes=5)


class TestPoll:
    async def test_a_turn_reclaims_and_claims(self, store: Store) -> None:
        await put(store)
        await claim(store, SHORT)
        await asyncio.sleep(SHORT.total_seconds() * 2)
        turn = await store.poll(1, ["t"], LEASE)
        assert (turn.reclaimed, [job.attempts for job in turn.jobs]) == (1, [2])

    async def test_an_idle_turn_says_when_to_come_again(self, store: Store) -> None:
        assert (await store.poll(5, ["t"], LEASE)).due_in is None
        await put(store, priority=3, delay=timedelta(minutes=10))
        await put(store, delay=timedelta(minutes=5))
        await put(store, "other", delay=timedelta(minutes=1))
        due_in = (await store.poll(5, ["t"], LEASE)).due_in
        assert due_in is not None
        assert timedelta(minutes=4) < due_in <= timedelta(minutes=5)

    async def test_a_lease_that_ends_is_foreseen(self, store: Store) -> None:
        await put(store)
        await claim(store)
        due_in = (await store.poll(5, ["t"], LEASE)).due_in
        assert due_in is not None
        assert timedelta(seconds=25) < due_in <= LEASE


class TestOperator:
    async def test_cancel_ends_what_is_not_finished(self, store: Store) -> None:
        waiting = await put(store)
        cancelled = await store.cancel(waiting.id)
        assert cancelled is not None
        assert (cancelled.status, cancelled.error) == (Status.DEAD, "cancelled")
        assert await store.cancel(waiting.id) is None
        assert await store.cancel(uuid4()) is None

    async def test_a_cancelled_run_is_told_and_its_result_refused(self, store: Store) -> None:
        await put(store)
        job = await claim(store)
        await store.cancel(job.id)
        assert await store.extend([job.held], LEASE) == set()
        assert await store.complete([job.held]) == set()
        assert await store.fail([Failure(*job.held, "late")]) == []

    async def test_retry_grants_a_fresh_budget(self, store: Store) -> None:
        await put(store, max_attempts=2)
        await fail(store, await claim(store), dead=True)
        (dead,) = await store.find(JobFilter(status=Status.DEAD))
        queued = await store.retry(dead.id)
        assert queued is not None
        assert (queued.status, queued.attempts, queued.max_attempts) == (Status.QUEUED, 1, 3)
        assert queued.run_after == queued.updated_at
        assert await store.retry(dead.id) is None

    async def test_retry_takes_the_budget_asked_for(self, store: Store) -> None:
        await put(store)
        await fail(store, await claim(store), dead=True)
        (dead,) = await store.find(JobFilter())
        queued = await store.retry(dead.id, 10)
        assert queued is not None
        assert queued.max_attempts == 11

    async def test_retry_is_refused_naming_the_live_owner_of_the_key(self, store: Store) -> None:
        dead = await put(store, key="k")
        await fail(store, await claim(store), dead=True)
        live = await put(store, key="k")
        before = await store.get(dead.id)
        with pytest.raises(RetryRefused, match=str(live.id)):
            await store.retry(dead.id)
        assert await store.get(dead.id) == before

    async def test_prune_takes_only_finished_jobs_of_the_kind_and_age(self, store: Store) -> None:
        await store.enqueue([new_job("t", {"n": n}) for n in range(4)])
        done, lost, *_ = await store.claim(3, None, LEASE)
        await store.complete([done.held])
        await fail(store, lost, dead=True)
        assert await store.prune(timedelta(hours=1), timedelta(hours=1)) == 0
        assert await store.prune(None, None) == 0
        assert await store.prune(timedelta(0), None) == 1
        assert await store.prune(timedelta(0), timedelta(0)) == 1
        assert {job.status for job in await store.find(JobFilter())} == {Status.RUNNING, Status.QUEUED}

    async def test_prune_stops_at_its_limit(self, store: Store) -> None:
        await store.enqueue([new_job("t") for _ in range(5)])
        await store.complete([job.held for job in await store.claim(5, None, LEASE)])
        assert [await store.prune(timedelta(0), None, 2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_stats_count_by_type_and_status(self, store: Store) -> None:
        await store.enqueue([new_job("a"), new_job("a"), new_job("b", delay=timedelta(hours=1))])
        await store.claim(1, ["a"], SHORT)
        await asyncio.sleep(SHORT.total_seconds() * 2)
        stats = {(s.type, s.status): s for s in await store.stats()}
        assert {key: s.count for key, s in stats.items()} == {
            ("a", Status.QUEUED): 1, ("a", Status.RUNNING): 1, ("b", Status.QUEUED): 1,
        }  # fmt: skip
        assert stats["a", Status.RUNNING].expired_leases == 1
        assert stats["a", Status.QUEUED].oldest_due_age is not None
        assert stats["b", Status.QUEUED].oldest_due_age is None

    async def test_find_pages_from_the_newest(self, store: Store) -> None:
        for n in range(5):
            await put(store, "a" if n % 2 else "b", {"n": n}, key=f"k{n}")
        page = await store.find(JobFilter(limit=2))
        rest = await store.find(JobFilter(before=(page[-1].created_at, page[-1].id)))
        assert [job.payload["n"] for job in [*page, *rest]] == [4, 3, 2, 1, 0]
        assert [job.payload["n"] for job in await store.find(JobFilter(type="a"))] == [3, 1]
        assert [job.payload["n"] for job in await store.find(JobFilter(idempotency_key="k2"))] == [2]
        assert await store.find(JobFilter(status=Status.DEAD)) == []

    async def test_an_unknown_job_is_none(self, store: Store) -> None:
        assert await store.get(UUID(int=0)) is None
        assert await store.retry(UUID(int=0)) is None


class TestLimits:
    async def test_a_paused_type_is_not_claimed_until_it_is_resumed(self, store: Store) -> None:
        await put(store, "a")
        other = await put(store, "b")
        await store.pause("a")
        assert [job.id for job in await store.claim(5, None, LEASE)] == [other.id]
        assert await store.claim(5, ["a"], LEASE) == []
        await store.resume("a")
        assert [job.type for job in await store.claim(5, ["a"], LEASE)] == ["a"]

    async def test_no_more_than_max_running_run_at_once(self, store: Store) -> None:
        await store.enqueue([new_job("a") for _ in range(5)])
        await store.limit("a", Limit(max_running=2))
        first = await store.claim(5, ["a"], LEASE)
        assert len(first) == 2
        assert await store.claim(5, None, LEASE) == []
        await store.complete([first[0].held])
        assert len(await store.claim(5, ["a"], LEASE)) == 1
        await store.limit("a", Limit())
        assert len(await store.claim(5, ["a"], LEASE)) == 2

    async def test_an_expired_lease_holds_no_capacity(self, store: Store) -> None:
        await store.enqueue([new_job("a") for _ in range(2)])
        await store.limit("a", Limit(max_running=1))
        await store.claim(1, ["a"], SHORT)
        await asyncio.sleep(SHORT.total_seconds() * 2)
        assert len(await store.claim(5, ["a"], LEASE)) == 1

    async def test_no_more_than_the_rate_start_in_its_time(self, store: Store) -> None:
        await store.enqueue([new_job("a") for _ in range(9)])
        await store.limit("a", Limit(rate=3, per=timedelta(seconds=0.4)))
        assert len(await store.claim(5, ["a"], LEASE)) == 3
        assert await store.claim(5, ["a"], LEASE) == []
        await asyncio.sleep(0.45)
        assert len(await store.claim(2, ["a"], LEASE)) == 2
        assert len(await store.claim(5, ["a"], LEASE)) == 1

    async def test_room_bounds_one_claim_type_by_type(self, store: Store) -> None:
        await store.enqueue([new_job(type) for type in "aaabbb"])
        claimed = await store.claim(10, ["a", "b"], LEASE, {"a": 1})
        assert sorted(job.type for job in claimed) == ["a", "b", "b", "b"]
        turn = await store.poll(10, ["a"], LEASE, {"a": 1})
        assert [job.type for job in turn.jobs] == ["a"]

    async def test_what_is_set_for_a_type_can_be_read_and_how_much_of_it_is_used(self, store: Store) -> None:
        minute = timedelta(minutes=1)
        assert await store.limits() == []
        await store.enqueue([new_job("b") for _ in range(5)])
        await store.limit("b", Limit(max_running=3, rate=100, per=minute))
        await store.pause("a")
        done, *_ = await store.claim(3, ["b"], LEASE)
        await store.complete([done.held])
        assert await store.limits() == [
            TypeLimit("a", paused=True, max_running=None, rate=None, per=None, running=0, started=0),
            TypeLimit("b", paused=False, max_running=3, rate=100, per=minute, running=2, started=3),
        ]

    async def test_a_type_that_nothing_bounds_any_more_is_as_one_that_never_was(self, store: Store) -> None:
        await put(store, "a")
        await store.limit("a", Limit(rate=5, per=timedelta(seconds=60)))
        await store.pause("a")
        await store.limit("a", Limit())
        assert [(limit.type, limit.paused, limit.rate) for limit in await store.limits()] == [("a", True, None)]
        await store.resume("a")
        await store.resume("never paused")
        assert await store.limits() == []
        assert (await store.poll(5, ["a"], LEASE, {"a": 0})).due_in == timedelta(0)

    async def test_a_limited_type_is_looked_for_again_soon_and_not_at_once(self, store: Store) -> None:
        await put(store, "a")
        await store.pause("a")
        due_in = (await store.poll(5, ["a"], LEASE)).due_in
        assert due_in is not None
        assert timedelta(seconds=0.3) < due_in <= timedelta(seconds=0.5)


class TestAlarm:
    async def test_new_work_wakes_who_waits_for_its_type(self, store: Store) -> None:
        alarm = store.alarm(["t"])
        armed = await alarm.arm()
        waiting = asyncio.create_task(alarm.wait(timedelta(seconds=5)))
        await asyncio.sleep(0.05)
        await put(store, "other")
        await put(store, "t")
        assert await waiting is alarm.rings is armed
        await alarm.close()

    async def test_a_quiet_queue_lets_the_time_pass(self, store: Store) -> None:
        alarm = store.alarm(["t"])
        await alarm.arm()
        assert not await alarm.wait(timedelta(milliseconds=20))
        await alarm.close()
