"""A browser, and a page in it for one user."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Literal

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.fix_stack import Stack
from tests.needs import need

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or what MARIAN_TEST_CHROMIUM names."""
    program = os.environ.get("MARIAN_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    need(program, "Chromium")
    with sync_playwright() as playwright:
        expect.set_options(timeout=10_000)
        yield playwright.chromium.launch(executable_path=program, args=FLAGS)


@pytest.fixture
def database(stack: Stack) -> Iterator[psycopg.Connection]:
    """The stack's database, without jobs."""
    with psycopg.connect(stack.dsn, autocommit=True) as connection:
        connection.execute("delete from public.marian_jobs")
        yield connection


@pytest.fixture
def user(stack: Stack) -> Callable[[], tuple[str, str]]:
    """Makes a user; returns its id and access token."""
    return lambda: stack.create_user(f"{os.urandom(4).hex()}@example.com")


@pytest.fixture
def open_page(stack: Stack, browser: Browser) -> Iterator[Open]:
    """Opens the page in a tab of its own, signed in where a token is given; an error in its scripts fails the test."""
    errors: list[str] = []
    contexts = []

    def open(token: str | None = None, *, color_scheme: Literal["light", "dark"] = "light", width: int = 1100) -> Page:
        context = browser.new_context(
            color_scheme=color_scheme,
            viewport={"width": width, "height": 800},
            reduced_motion="reduce",  # a colour that is still fading is not the colour that stays
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(stack.url + "/" + (f"#access_token={token}" if token else ""))
        return page

    yield open
    for context in contexts:
        context.close()
    assert errors == []
