from collections.abc import Iterator

import pytest

from tests.fix_postgres import TEMPLATE, Server
from tests.races.sessions import Meeting, meeting


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[str]:
    """The DSN of a database for a file's meetings, one after the other."""
    yield server.create_database("races", template=TEMPLATE)
    server.drop_database("races")


@pytest.fixture
def met(place: str) -> Iterator[Meeting]:
    """Two sessions over an empty queue."""
    with meeting(place) as met:
        yield met
