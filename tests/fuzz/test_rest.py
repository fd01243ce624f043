"""Every RPC that the real PostgREST offers, with hostile bodies: 2xx, or a refusal by a documented code, never a 500.

Names and arguments come from PostgREST's own description of itself, values from those for SQL.
"""

import json
from collections.abc import Iterator
from time import time
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jose import jwt

from tests.fix_postgres import Server
from tests.fix_stack import JWT_SECRET, serving_rest
from tests.fuzz.hostile import API_CODES, arguments, documented_codes, fuzzing, json_values
from tests.supabase.rls_matrix import FUNCTIONS

NAMES = sorted(f.name for f in FUNCTIONS if f.name != "marian_jobs_restrict")  # changes grants; not for the API's use
STATUSES = documented_codes() | API_CODES
ROWS = "select md5(string_agg(j::text, ' ' order by id)) from public.marian_jobs j"
NO_JSON = ["", "{", "nonsense", "[]", "null", "1", '"text"', '{"p_id": 1, "p_id": 2}', "[" * 20_000 + "]" * 20_000]
JSON_KIND = {"boolean": bool, "integer": int}


class Api:
    """PostgREST as service_role, what it says of itself, and what its table holds."""

    def __init__(self, url: str, dsn: str) -> None:
        token = jwt.encode({"role": "service_role", "exp": time() + 3600}, JWT_SECRET)
        self.client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=30)
        self.table = psycopg.connect(dsn, autocommit=True)
        self.paths: dict[str, Any] = self.client.get("/").json()["paths"]

    def arguments(self, name: str) -> dict[str, str]:
        """The function's arguments and their types in Postgres' words."""
        body = self.paths[f"/rpc/{name}"]["post"]["parameters"][0]["schema"].get("properties", {})
        return {argument: about["format"] for argument, about in body.items()}

    def rows(self) -> Any:
        return self.table.execute(ROWS).fetchall()

    def send(self, name: str, body: str) -> None:
        """Sends it and judges the answer."""
        before = self.rows()
        answer = self.client.post(f"/rpc/{name}", content=body, headers={"content-type": "application/json"})
        if answer.is_success:
            return
        code = answer.json()["code"]
        assert STATUSES.get(code) == answer.status_code, answer.text
        assert self.rows() == before


@pytest.fixture(scope="module")
def api(server: Server, filled: str) -> Iterator[Api]:
    with serving_rest(server, "fuzzed") as url:
        api = Api(url, filled)
        yield api
        api.client.close()
        api.table.close()


def as_json(type: str, text: str | None) -> Any:
    """The value in JSON's own kind where it has one."""
    if text is None or type not in JSON_KIND:
        return json.loads(text) if type == "jsonb" and text is not None else text
    return text == "true" if type == "boolean" else int(text)


@pytest.mark.parametrize("name", NAMES)
def test_an_rpc_answers_or_refuses_by_a_documented_code(api: Api, name: str) -> None:
    types = api.arguments(name)
    likely = {
        argument: arguments(type, 150000).map(lambda text, type=type: as_json(type, text))  # type: ignore[misc]
        for argument, type in types.items()
    }
    hostile = {argument: values | json_values for argument, values in likely.items()} | {"p_unknown": json_values}

    @fuzzing(10)
    @given(
        st.fixed_dictionaries(likely).map(json.dumps)
        | st.fixed_dictionaries({}, optional=hostile).map(json.dumps)
        | json_values.map(json.dumps)
        | st.sampled_from(NO_JSON)
    )
    def call(body: str) -> None:
        api.send(name, body)

    call()


def test_a_function_that_writes_is_not_called_by_a_get(api: Api) -> None:
    before = api.rows()
    for name in (
        "claim_job",
        "reclaim_expired",
        "prune_jobs?p_succeeded_older=0&p_dead_older=0",
        "enqueue_job?p_type=t",
    ):
        assert api.client.get(f"/rpc/{name}").status_code == 405
    assert api.rows() == before
