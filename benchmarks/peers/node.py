"""Where the queues written for Node live: their packages, installed once into the user's cache, and our programs."""

import hashlib
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.systems import BenchmarkError

HERE = Path(__file__).parent
_SCRIPTS = Path(sysconfig.get_path("scripts"))


def environment() -> dict[str, str]:
    """An environment in which `node` is the one of the wheel: under an older one npm installs older queues."""
    return {**os.environ, "PATH": f"{_SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}"}


def program(name: str) -> list[str]:
    """The command of a program of ours, beside the packages that it imports."""
    place = _installed()
    for file in HERE.glob("*.mjs"):
        shutil.copy(file, place)
    return [str(_SCRIPTS / "node"), str(place / name)]


def _installed() -> Path:
    wanted = HERE / "package.json"
    place = user_cache_path("marian-jobs") / "benchmarks" / hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    if not (place / ".installed").exists():
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, place)
        done = subprocess.run(
            [_SCRIPTS / "npm", "install", "--no-audit", "--no-fund", "--engine-strict"],
            cwd=place,
            env=environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BenchmarkError(f"npm install for the peers failed: {done.stderr.strip()[-500:]}")
        (place / ".installed").touch()
    return place
