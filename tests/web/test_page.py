"""The page in a real Chromium, over the real PostgREST."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psycopg
import pytest
from playwright.sync_api import Page, expect

from tests.fix_npm import AXE, npm_package
from tests.fix_stack import Stack
from tests.supabase.edge import CONFIG, deno_says
from tests.web.conftest import Open

WEB = Path(__file__).parent.parent.parent / "marian_jobs" / "web"
User = Callable[[], tuple[str, str]]


def enqueue(database: psycopg.Connection, user: str, type: str, **more: int) -> str:
    statement = "select id::text from public.enqueue_job(%s, p_user_id => %s, p_max_attempts => %s)"
    row = database.execute(statement, [type, user, more.get("max_attempts", 3)]).fetchone()
    assert row is not None
    return str(row[0])


def claim(database: psycopg.Connection, type: str) -> None:
    database.execute("select public.claim_job(array[%s])", [type])


def fail(database: psycopg.Connection, id: str, error: str) -> None:
    database.execute("select public.fail_job(%s, 1, %s, interval '1 hour')", [id, error])


def types(page: Page) -> list[str]:
    return page.locator(".job .type").all_text_contents()


def status(page: Page, type: str) -> str | None:
    return page.locator(".job", has_text=type).locator(".word").text_content()


def wait_for_status(page: Page, type: str, word: str) -> None:
    expect(page.locator(".job", has_text=type).locator(".word")).to_have_text(word)


def test_two_users_each_see_only_their_own_jobs(database: psycopg.Connection, user: User, open_page: Open) -> None:
    (ada, ada_token), (bob, bob_token) = user(), user()
    for owner, type in ((ada, "ada-first"), (bob, "bob-only"), (ada, "ada-second")):
        enqueue(database, owner, type)
    database.execute("select public.enqueue_job('nobodys')")
    for token, own in ((ada_token, ["ada-second", "ada-first"]), (bob_token, ["bob-only"])):
        page = open_page(token)
        expect(page.locator(".job")).to_have_count(len(own))
        assert types(page) == own


def test_a_change_of_state_appears_and_is_announced_without_a_reload(
    database: psycopg.Connection, user: User, open_page: Open
) -> None:
    ada, token = user()
    page = open_page(token)
    expect(page.locator("#empty-title")).to_have_text("No jobs yet")
    page.evaluate("window.untouched = true")

    id = enqueue(database, ada, "embed", max_attempts=1)
    wait_for_status(page, "embed", "Queued")
    claim(database, "embed")
    wait_for_status(page, "embed", "Running")
    expect(page.locator("#news")).to_have_text("embed is now running")
    expect(page.locator(".steps [aria-current=step]")).to_have_text("Running")
    fail(database, id, "ValueError: too long\n  at app.embed, line 7")
    wait_for_status(page, "embed", "Dead")
    expect(page.locator(".reason")).to_have_text("Error: ValueError: too long")
    page.locator(".why summary").click()
    expect(page.locator(".why pre")).to_contain_text("at app.embed, line 7")
    assert page.evaluate("window.untouched") is True


def test_the_filter_shows_one_status_and_says_when_there_is_none(
    database: psycopg.Connection, user: User, open_page: Open
) -> None:
    ada, token = user()
    for type in ("a", "b"):
        enqueue(database, ada, type)
    claim(database, "b")
    page = open_page(token)
    expect(page.locator(".job")).to_have_count(2)

    page.get_by_label("Running").check()
    expect(page.locator(".job")).to_have_count(1)
    assert types(page) == ["b"]
    page.get_by_label("Succeeded").check()
    expect(page.locator("#empty-title")).to_have_text("No succeeded jobs")
    assert types(page) == []
    page.get_by_label("All").check()
    expect(page.locator(".job")).to_have_count(2)


def test_it_can_be_used_with_the_keyboard_and_an_update_takes_no_focus(
    database: psycopg.Connection, user: User, open_page: Open
) -> None:
    ada, token = user()
    id = enqueue(database, ada, "sync")
    claim(database, "sync")
    fail(database, id, "first line\nsecond line")
    page = open_page(token)
    wait_for_status(page, "sync", "Retrying")

    page.get_by_label("All").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    expect(page.locator(".why pre")).to_be_visible()
    database.execute("select public.cancel_job(%s)", [id])
    wait_for_status(page, "sync", "Dead")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    expect(page.locator(".why pre")).to_have_text("cancelled")

    page.get_by_label("All").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("Queued")).to_be_checked()
    expect(page.locator("#empty-title")).to_have_text("No queued jobs")


def test_when_the_service_is_away_it_says_so_and_comes_back_by_itself(
    database: psycopg.Connection, user: User, open_page: Open
) -> None:
    ada, token = user()
    enqueue(database, ada, "still-here")
    page = open_page(token)
    wait_for_status(page, "still-here", "Queued")
    page.route("**/rest/v1/**", lambda route: route.abort())
    expect(page.locator("#error-text")).to_contain_text("cannot be reached")
    assert types(page) == ["still-here"]
    expect(page.locator("#live")).to_contain_text("Not up to date since")

    page.unroute("**/rest/v1/**")
    claim(database, "still-here")
    wait_for_status(page, "still-here", "Running")
    expect(page.locator("#error")).to_be_hidden()
    expect(page.locator("#live")).to_have_text("Live")


def test_the_token_leaves_the_address_survives_a_reload_and_is_forgotten_at_sign_out(
    stack: Stack, database: psycopg.Connection, user: User, open_page: Open
) -> None:
    ada, token = user()
    enqueue(database, ada, "mine")
    page = open_page(token)
    wait_for_status(page, "mine", "Queued")
    assert page.url == stack.url + "/"
    page.reload()
    wait_for_status(page, "mine", "Queued")

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Access token")).to_be_focused()
    assert types(page) == []
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0
    page.get_by_label("Access token").fill(token)
    page.keyboard.press("Enter")
    wait_for_status(page, "mine", "Queued")


def test_a_key_that_is_no_users_is_refused_and_sent_nowhere(stack: Stack, open_page: Open) -> None:
    page = open_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    refusals = {
        "rubbish": "not an access token",
        stack.anon_key: "not a user's",
        stack.service_role_key: "not a user's",
        stack.secret_key: "not an access token",
    }
    for key, refusal in refusals.items():
        page.get_by_label("Access token").fill(key)
        page.get_by_role("button", name="Show my jobs").click()
        expect(page.locator("#sign-in-error")).to_contain_text(refusal)
    assert [url for url in sent if not url.endswith("/icon.svg")] == []


def test_a_session_that_ends_leads_back_to_signing_in(user: User, open_page: Open) -> None:
    _, token = user()
    page = open_page(token)
    expect(page.locator("#empty")).to_be_visible()
    refusal = {"status": 401, "json": {"code": "PGRST301", "message": "JWT expired"}}
    page.route("**/rest/v1/**", lambda route: route.fulfill(**refusal))
    expect(page.locator("#sign-in-error")).to_have_text("Your session has ended. Sign in again.")


def test_more_than_fifty_jobs_come_in_portions(database: psycopg.Connection, user: User, open_page: Open) -> None:
    ada, token = user()
    database.execute(
        "insert into public.marian_jobs (user_id, type, created_at)"
        " select %s, 'job-' || n, now() - n * interval '1 minute' from generate_series(1, 60) n",
        [ada],
    )
    page = open_page(token)
    expect(page.locator(".job")).to_have_count(50)
    assert types(page)[:2] == ["job-1", "job-2"]
    page.get_by_role("button", name="Show older jobs").click()
    expect(page.locator(".job")).to_have_count(60)
    expect(page.get_by_role("button", name="Show older jobs")).to_be_hidden()


def test_what_a_job_says_is_text_and_never_markup(database: psycopg.Connection, user: User, open_page: Open) -> None:
    ada, token = user()
    evil = "<img src=x onerror='window.harmed=1'>"
    id = enqueue(database, ada, evil)
    claim(database, evil)
    fail(database, id, f"<b>bold</b>{evil}")
    page = open_page(token)
    expect(page.locator(".type")).to_have_text(evil)
    expect(page.locator(".reason")).to_contain_text("<b>bold</b>")
    assert page.evaluate("[window.harmed, document.querySelectorAll('main img, main b').length]") == [None, 0]


def test_it_loads_nothing_from_anywhere_else(stack: Stack, user: User, open_page: Open) -> None:
    page = open_page()
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    _, token = user()
    page.goto(f"{stack.url}/#access_token={token}")
    page.reload()
    expect(page.locator("#empty")).to_be_visible()
    assert hosts == {urlsplit(stack.url).netloc}


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_axe_finds_no_barrier(
    color_scheme: Literal["light", "dark"], width: int, database: psycopg.Connection, user: User, open_page: Open
) -> None:
    """Signed out, empty, with a job in every state, an error opened, and with the service away."""
    ada, token = user()
    page = open_page(color_scheme=color_scheme, width=width)
    page.get_by_label("Access token").fill("rubbish")
    page.keyboard.press("Enter")
    assert barriers(page) == []
    page.get_by_label("Access token").fill(token)
    page.keyboard.press("Enter")
    expect(page.locator("#empty")).to_be_visible()
    assert barriers(page) == []

    ids = {type: enqueue(database, ada, type) for type in ("idle", "busy", "again", "done", "lost")}
    for type in ("busy", "again", "done", "lost"):
        claim(database, type)
    fail(database, ids["again"], "TimeoutError: no answer\nat line 1")
    database.execute("select public.complete_job(%s, 1)", [ids["done"]])
    database.execute("select public.cancel_job(%s)", [ids["lost"]])
    expect(page.locator(".job")).to_have_count(5)
    wait_for_status(page, "lost", "Dead")
    page.locator(".why summary").first.click()
    page.route("**/rest/v1/**", lambda route: route.abort())
    expect(page.locator("#error")).to_be_visible()
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def barriers(page: Page) -> list[str]:
    # As a string, since the page's own policy lets no foreign script element in.
    page.evaluate((npm_package(AXE) / "axe-core" / "axe.min.js").read_text() + "; undefined")
    found = page.evaluate("axe.run()")
    return [f"{v['id']}: {node['html'][:120]}" for v in found["violations"] for node in v["nodes"]]


@pytest.mark.parametrize("command", [["lint"], ["fmt", "--check"]], ids=lambda command: command[0])
def test_its_scripts_are_clean(command: list[str]) -> None:
    assert deno_says(command[0], "--config", CONFIG, *command[1:], *WEB.glob("*.js")) == ""
