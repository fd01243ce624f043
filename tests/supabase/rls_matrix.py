"""Who may do what: every verb, table and function, one expected answer for each of the four who may ask.

The rows in the table: two of A's, one of B's, one without owner. An answer is the number of rows that were seen or
touched, or REFUSED, which is Postgres' 42501 and nothing else.
"""

from typing import Any, NamedTuple

REFUSED = "refused"
DONE = "done"

A = "aaaaaaaa-0000-4000-8000-000000000000"
B = "bbbbbbbb-0000-4000-8000-000000000000"
JOB_OF_A = "aaaaaaaa-0000-4000-8000-000000000001"
DEAD_OF_A = "aaaaaaaa-0000-4000-8000-000000000002"
JOB_OF_B = "bbbbbbbb-0000-4000-8000-000000000001"
OWNERLESS = "00000000-0000-4000-8000-000000000001"


class Verb(NamedTuple):
    """One question to the table, in both languages; `http` is method, path and body."""

    name: str
    sql: str
    http: tuple[str, str, dict[str, Any] | None] | None
    anon: int | str
    a: int | str
    b: int | str
    service: int | str


READABLE = {"marian_jobs"}  # by users, as far as the policies let them
TABLES = READABLE | {"marian_job_limits"}
VIEWS: set[str] = set()  # none yet; one that is added needs rows here
R = REFUSED

# fmt: off
VERBS = [
    Verb("select every row", "select * from public.marian_jobs",
         ("GET", "marian_jobs", None),                                             0, 2, 1, 4),
    Verb("select A's rows", f"select * from public.marian_jobs where user_id = '{A}'",
         ("GET", f"marian_jobs?user_id=eq.{A}", None),                             0, 2, 0, 2),
    Verb("select B's rows", f"select * from public.marian_jobs where user_id = '{B}'",
         ("GET", f"marian_jobs?user_id=eq.{B}", None),                             0, 0, 1, 1),
    Verb("select rows without owner", "select * from public.marian_jobs where user_id is null",
         ("GET", "marian_jobs?user_id=is.null", None),                             0, 0, 0, 1),
    Verb("insert one of A's", f"insert into public.marian_jobs (type, user_id) values ('t', '{A}') returning id",
         ("POST", "marian_jobs", {"type": "t", "user_id": A}),                     R, R, R, 1),
    Verb("insert one of B's", f"insert into public.marian_jobs (type, user_id) values ('t', '{B}') returning id",
         ("POST", "marian_jobs", {"type": "t", "user_id": B}),                     R, R, R, 1),
    Verb("insert one without owner", "insert into public.marian_jobs (type) values ('t') returning id",
         ("POST", "marian_jobs", {"type": "t"}),                                   R, R, R, 1),
    Verb("put a row over A's", f"insert into public.marian_jobs (id, type) values ('{JOB_OF_A}', 't')"
                               " on conflict (id) do update set type = 'u' returning id",
         ("PUT", f"marian_jobs?id=eq.{JOB_OF_A}", {"id": JOB_OF_A, "type": "u"}),  R, R, R, 1),
    Verb("update A's status", f"update public.marian_jobs set status = 'dead' where id = '{JOB_OF_A}' returning id",
         ("PATCH", f"marian_jobs?id=eq.{JOB_OF_A}", {"status": "dead"}),           R, R, R, 1),
    Verb("update B's owner", f"update public.marian_jobs set user_id = '{A}' where id = '{JOB_OF_B}' returning id",
         ("PATCH", f"marian_jobs?id=eq.{JOB_OF_B}", {"user_id": A}),               R, R, R, 1),
    Verb("update one without owner", f"update public.marian_jobs set type = 'u' where id = '{OWNERLESS}' returning id",
         ("PATCH", f"marian_jobs?id=eq.{OWNERLESS}", {"type": "u"}),               R, R, R, 1),
    Verb("delete A's", f"delete from public.marian_jobs where id = '{JOB_OF_A}' returning id",
         ("DELETE", f"marian_jobs?id=eq.{JOB_OF_A}", None),                        R, R, R, 1),
    Verb("delete B's", f"delete from public.marian_jobs where id = '{JOB_OF_B}' returning id",
         ("DELETE", f"marian_jobs?id=eq.{JOB_OF_B}", None),                        R, R, R, 1),
    Verb("delete one without owner", f"delete from public.marian_jobs where id = '{OWNERLESS}' returning id",
         ("DELETE", f"marian_jobs?id=eq.{OWNERLESS}", None),                       R, R, R, 1),
    Verb("truncate", "truncate public.marian_jobs",
         None,                                                                     R, R, R, DONE),
    Verb("lock a row", f"select id from public.marian_jobs where id = '{JOB_OF_A}' for update",
         None,                                                                     R, R, R, 1),
    Verb("lock the table", "lock table public.marian_jobs in share row exclusive mode",
         None,                                                                     R, R, R, DONE),
    Verb("copy out", "copy public.marian_jobs to stdout",
         None,                                                                     0, 2, 1, 4),
    Verb("copy in", "copy public.marian_jobs (type) from stdin",
         None,                                                                     R, R, R, DONE),
    Verb("add a trigger", "create trigger t before update on public.marian_jobs for each row"
                          " execute function pg_catalog.suppress_redundant_updates_trigger()",
         None,                                                                     R, R, R, DONE),
    Verb("switch row security off", "alter table public.marian_jobs disable row level security",
         None,                                                                     R, R, R, R),
    Verb("drop the policy", "drop policy marian_jobs_select_own on public.marian_jobs",
         None,                                                                     R, R, R, R),
    Verb("select the limits", "select * from public.marian_job_limits",
         ("GET", "marian_job_limits", None),                                       R, R, R, 0),
    Verb("insert a limit", "insert into public.marian_job_limits (type) values ('u') returning type",
         ("POST", "marian_job_limits", {"type": "u"}),                             R, R, R, 1),
    Verb("update the limits", "update public.marian_job_limits set paused = true where type = 'absent' returning type",
         ("PATCH", "marian_job_limits?type=eq.absent", {"paused": True}),               R, R, R, 0),
    Verb("delete the limits", "delete from public.marian_job_limits where type = 'absent' returning type",
         ("DELETE", "marian_job_limits?type=eq.absent", None),                          R, R, R, 0),
    Verb("truncate the limits", "truncate public.marian_job_limits",
         None,                                                                     R, R, R, DONE),
    Verb("drop the table", "drop table public.marian_jobs",
         None,                                                                     R, R, R, R),
]


class Function(NamedTuple):
    """One call of a function by its argument names; the same in both languages."""

    name: str
    arguments: dict[str, Any]
    anon: str
    a: str
    b: str
    service: str


FUNCTIONS = [
    Function("cancel_job", {"p_id": JOB_OF_A},                                                      R, R, R, DONE),
    Function("claim_job", {"p_types": ["t"]},                                                       R, R, R, DONE),
    Function("claim_jobs", {"p_limit": 1},                                                          R, R, R, DONE),
    Function("complete_job", {"p_id": JOB_OF_A, "p_attempt": 0},                                    R, R, R, DONE),
    Function("complete_jobs", {"p_ids": [JOB_OF_A], "p_attempts": [0]},                             R, R, R, DONE),
    Function("enqueue_job", {"p_type": "t", "p_user_id": A},                                        R, R, R, DONE),
    Function("enqueue_jobs", {"p_jobs": [{"type": "t", "user_id": A}]},                             R, R, R, DONE),
    Function("enqueue_slot", {"p_name": "n", "p_type": "t"},                                        R, R, R, DONE),
    Function("extend_leases", {"p_ids": [JOB_OF_A], "p_attempts": [0]},                             R, R, R, DONE),
    Function("fail_job", {"p_id": JOB_OF_A, "p_attempt": 0, "p_error": "e"},                        R, R, R, DONE),
    Function("fail_jobs", {"p_ids": [JOB_OF_A], "p_attempts": [0], "p_errors": ["e"]},              R, R, R, DONE),
    Function("job_backoff", {"p_attempt": 1},                                                       R, R, R, DONE),
    Function("job_stats", {},                                                                       R, R, R, DONE),
    Function("job_limits", {},                                                                      R, R, R, DONE),
    Function("marian_jobs_figures", {},                                                             R, R, R, DONE),
    Function("marian_jobs_bounded_error", {"p_error": "e"},                                         R, R, R, DONE),
    Function("marian_jobs_check_held", {"p_function": "f", "p_ids": [], "p_attempts": []},          R, R, R, DONE),
    Function("marian_jobs_check_isolation", {"p_function": "f"},                                    R, R, R, DONE),
    Function("marian_jobs_check_lease", {"p_function": "f", "p_lease": "1 second"},                 R, R, R, DONE),
    Function("marian_jobs_claim_head", {"p_type": "t", "p_now": "2026-01-01T00:00:00Z"},            R, R, R, DONE),
    Function("marian_jobs_claim_from", {"p_type": "t", "p_now": "2026-01-01T00:00:00Z", "p_floors": [],
                                        "p_floors_due": [], "p_floors_made": []},                   R, R, R, DONE),
    Function("marian_jobs_take", {"p_limit": 1, "p_types": ["t"], "p_lease": "1 second"},           R, R, R, DONE),
    Function("marian_jobs_load", {"p_ids": [], "p_types": [], "p_payloads": ""},                    R, R, R, DONE),
    Function("marian_jobs_enqueue_batch", {"p_jobs": [{"type": "t", "user_id": A}]},                R, R, R, DONE),
    Function("marian_jobs_next_due", {"p_types": ["t"]},                                            R, R, R, DONE),
    Function("marian_jobs_poll", {"p_limit": 1, "p_types": ["t"], "p_lease": "1 second"},           R, R, R, DONE),
    Function("marian_jobs_restrict", {"p_functions": []},                                           R, R, R, DONE),
    Function("marian_jobs_room", {"p_types": ["t"], "p_room": [1], "p_now": "2026-01-01T00:00:00Z"}, R, R, R, DONE),
    Function("marian_jobs_count_starts", {"p_type": "t", "p_count": 1, "p_now": "2026-01-01T00:00:00Z"}, R, R, R, DONE),
    Function("limit_type", {"p_type": "t", "p_max_running": 1},                                     R, R, R, DONE),
    Function("pause_type", {"p_type": "t"},                                                         R, R, R, DONE),
    Function("resume_type", {"p_type": "t"},                                                        R, R, R, DONE),
    Function("marian_jobs_settle", {"p_ids": [JOB_OF_A], "p_attempts": [0]},                        R, R, R, DONE),
    Function("marian_jobs_slot_id", {"p_key": "k", "p_slot": "2026-01-01T00:00:00Z"},               R, R, R, DONE),
    Function("marian_jobs_waiting_types", {},                                                       R, R, R, DONE),
    Function("marian_jobs_wake", {"p_types": ["t"]},                                                R, R, R, DONE),
    Function("prune_jobs", {"p_succeeded_older": "1 day", "p_dead_older": "1 day"},                 R, R, R, DONE),
    Function("reclaim_expired", {"p_limit": 1},                                                     R, R, R, DONE),
    Function("release_jobs", {"p_ids": [JOB_OF_A], "p_attempts": [0]},                              R, R, R, DONE),
    Function("retry_job", {"p_id": DEAD_OF_A},                                                      R, R, R, DONE),
]
# fmt: on
