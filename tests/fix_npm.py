"""Programs that npm has: each version is installed once into the user's cache and used from there."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

from tests.needs import need

DENO = "deno@2.9.6"
SUPABASE_CLI = "supabase@2.117.0"
AXE = "axe-core@4.14.1"


def npm_package(spec: str) -> Path:
    """The directory `node_modules` that holds the package; skips (fails in CI) where it cannot be had."""
    place = user_cache_path("marian-jobs") / "npm" / spec.replace("/", "+")
    if not place.exists():
        _install(spec, place)
    return place / "node_modules"


def _install(spec: str, place: Path) -> None:
    npm = shutil.which("npm")
    need(npm, "npm")
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=place.parent))
    done = subprocess.run([str(npm), "install", "--no-save", "--no-audit", "--no-fund", "--prefix", fresh, spec],
                          capture_output=True, text=True, cwd=fresh)  # fmt: skip
    need(done.returncode == 0, f"npm install {spec}: {done.stderr.strip()[-300:]}")
    try:
        fresh.rename(place)
    except OSError:  # another test process was faster
        shutil.rmtree(fresh)


def deno() -> str:
    """The Deno program."""
    return str(npm_package(DENO) / ".bin" / "deno")


def deno_env() -> dict[str, str]:
    """An environment for Deno: its downloads are kept in the cache beside it, and it says nothing in colour."""
    cache = user_cache_path("marian-jobs") / "deno"
    return {**os.environ, "DENO_DIR": str(cache), "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"}


def run_supabase(directory: Path, *arguments: str) -> str:
    """Runs the Supabase CLI there and returns all it said; a command that fails fails the test."""
    done = subprocess.run(
        [npm_package(SUPABASE_CLI) / ".bin" / "supabase", *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        # It keeps files at home, and would like to tell its makers of its use.
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "SUPABASE_TELEMETRY_DISABLED": "1",
            "DO_NOT_TRACK": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
