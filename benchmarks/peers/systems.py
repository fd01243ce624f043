"""The other queues: how each is started, set up and asked."""

import sys

from benchmarks.peers import node
from benchmarks.systems import System


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.peers.{module}"]


PYTHON = [
    System(
        "procrastinate",
        _python("procrastinate"),
        "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))",
        note="psycopg connector with up to 12 connections, concurrency 30; `batch_defer` for bulk. It fetches one job "
        "at a time, so it drains a tenth of the jobs.",
        share=0.1,
    ),
    System(
        "pgqueuer",
        _python("pgqueuer"),
        "select exists (select from pgqueuer)",
        note="asyncpg with a pool, uvloop, `batch_size=500`; lists of 10,000 for bulk.",
    ),
    System(
        "pgmq",
        _python("pgmq"),
        "select exists (select from pgmq.q_noop)",
        note="its SQL script; asyncpg and uvloop, `read` and `delete` of 1,000, `send_batch` of 10,000; woken by its "
        "insert trigger without throttle.",
    ),
]


def _node() -> list[System]:
    environment = node.environment()
    return [
        System(
            "graphile-worker",
            node.program("graphile_worker.mjs"),
            "select exists (select from graphile_worker.jobs)",
            note="`concurrentJobs` 24, `localQueue` of 500, completions batched (`completeJobBatchDelay` 0), as its "
            "page on performance says; `addJobs` of 10,000 for bulk.",
            environment=environment,
        ),
        System(
            "pg-boss",
            node.program("pg_boss.mjs"),
            "select exists (select from pgboss.job where state < 'completed')",
            note="`batchSize` 1,000, `burstWhenBatchFull`, `localConcurrency` 4, LISTEN; `insert` of 10,000 for bulk.",
            environment=environment,
        ),
    ]


def all_peers() -> list[System]:
    """Every other queue; installs the packages of those written for Node where they are not there yet."""
    return [*PYTHON, *_node()]
