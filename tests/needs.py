"""A service that is missing skips on a laptop and fails in CI."""

import os

import pytest


def need(there: object, what: str) -> None:
    """Goes on when the thing is there."""
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(f"missing in CI: {what}")
    pytest.skip(f"missing: {what}")
