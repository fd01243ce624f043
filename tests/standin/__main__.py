"""Images that stand in for `supabase/postgres` and `postgrest/postgrest` where no registry can be reached.

    python -m tests.standin      makes them of this machine's files, and prints what to set before running the tests

What they prove is the path (Docker, mapped ports, roles and passwords, the database copied, PostgREST beside it), not
Supabase's images: Postgres is Debian's, started as theirs is; PostgREST is the local stack's own program, in a
container. Needs Docker, and Debian's or Ubuntu's package postgresql.
"""

import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker

from marian_jobs.local.postgres import BOOTSTRAP
from marian_jobs.local.postgrest import program

HERE = Path(__file__).parent
POSTGRES, POSTGREST = "marian-standin/postgres", "marian-standin/postgrest"
OWNER = 999
CONF = """\
data_directory = '/var/lib/postgresql/data'
hba_file = '/var/lib/postgresql/data/pg_hba.conf'
ident_file = '/var/lib/postgresql/data/pg_ident.conf'
listen_addresses = '*'
unix_socket_directories = '/tmp'
wal_level = logical
shared_preload_libraries = 'pg_stat_statements'
"""


class Image:
    """A file system for `docker import`, gathered in memory."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w", dereference=True)  # noqa: SIM115 closed by load
        self._there: set[str] = set()

    def add(self, *files: Path) -> None:
        """Adds files of this machine at their own paths, whatever they link to in their place."""
        for file in files:
            if str(file) not in self._there:
                self._parents(file)
                self._there.add(str(file))
                self._tar.add(file, str(file).lstrip("/"))

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Adds a file with this content."""
        data = content.encode() if isinstance(content, str) else content
        self._entry(path, tarfile.REGTYPE, mode, 0, data)

    def directory(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        """Adds an empty directory."""
        self._entry(path, tarfile.DIRTYPE, mode, owner, b"")

    def load(self, name: str, changes: Sequence[str]) -> None:
        """Gives it to Docker under a name."""
        self._tar.close()
        client: Any = docker.from_env()
        client.api.import_image_from_data(self._bytes.getvalue(), repository=name, tag="local", changes=list(changes))

    def _parents(self, path: Path) -> None:
        """Adds the directories above, since those that Docker makes by itself are root's alone."""
        for parent in reversed(path.parents):
            if str(parent) not in self._there:
                self._there.add(str(parent))
                entry = tarfile.TarInfo(str(parent).lstrip("/") or ".")
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                self._tar.addfile(entry)

    def _entry(self, path: str, kind: bytes, mode: int, owner: int, data: bytes) -> None:
        self._parents(Path(path))
        self._there.add(path)
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.type, entry.mode, entry.size, entry.uid, entry.gid = kind, mode, len(data), owner, owner
        self._tar.addfile(entry, io.BytesIO(data))


def libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """What the dynamic linker loads for them, and the linker itself."""
    for file in programs:
        for word in subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout.split():
            if word.startswith("/"):
                yield Path(word.rstrip(":"))


def postgres_image(bin: Path) -> None:
    """Debian's Postgres, with a start like the real image's."""
    version = bin.parent.name
    lib, share = bin.parent / "lib", Path("/usr/share/postgresql") / version
    modules = [file for file in lib.glob("*.so") if not file.name.startswith("llvmjit")]
    tools = [Path("/bin/sh"), *(Path("/usr/bin") / tool for tool in ("sleep", "cat", "locale"))]
    programs = [bin / name for name in ("postgres", "initdb", "psql")] + tools
    image = Image()
    image.directory("/tmp", 0o1777)
    image.directory("/var/lib/postgresql/data", 0o700, OWNER)
    image.add(*programs, *modules, *libraries([*programs, *modules]), share, Path("/usr/share/zoneinfo"))
    image.add(*Path("/usr/lib/locale").glob("C.*"))
    image.write("/etc/passwd", f"root:x:0:0::/:/bin/sh\npostgres:x:{OWNER}:{OWNER}::/tmp:/bin/sh\n")
    image.write("/etc/postgresql/postgresql.conf", CONF)
    image.write("/entrypoint.sh", (HERE / "entrypoint.sh").read_bytes(), 0o755)
    project = [*(file.read_text() for file in BOOTSTRAP), (HERE / "project.sql").read_text()]
    image.write("/project.sql", "\n".join(["set marian.grants = 'all';", *project]))
    image.load(
        POSTGRES,
        [
            f"ENV POSTGRES_BIN={bin}",
            "ENV PGDATA=/var/lib/postgresql/data",
            f"USER {OWNER}:{OWNER}",
            'ENTRYPOINT ["/entrypoint.sh"]',
            'CMD ["postgres", "-D", "/etc/postgresql"]',
            "EXPOSE 5432",
        ],
    )


def postgrest_image() -> None:
    """The local stack's PostgREST, configured by the environment as the real image is."""
    image = Image()
    image.directory("/tmp", 0o1777)
    image.write("/bin/postgrest", program().read_bytes(), 0o755)
    image.load(POSTGREST, ['ENTRYPOINT ["/bin/postgrest"]', "USER 1000", "EXPOSE 3000"])


def settings() -> Mapping[str, str]:
    """What makes the tests use them. The reaper's image cannot be had either: containers go when the tests end."""
    return {
        "MARIAN_TEST_STACK": "containers",
        "MARIAN_TEST_POSTGRES_IMAGE": f"{POSTGRES}:local",
        "MARIAN_TEST_POSTGREST_IMAGE": f"{POSTGREST}:local",
        "TESTCONTAINERS_RYUK_DISABLED": "true",
    }


if __name__ == "__main__":
    newest = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda file: int(file.parts[4]), default=None)
    if newest is None:
        raise SystemExit("no Postgres in /usr/lib/postgresql: apt-get install postgresql")
    postgres_image(newest.parent)
    postgrest_image()
    for name, value in settings().items():
        print(f"export {name}={value}")
    if host := os.environ.get("DOCKER_HOST"):
        print(f"export DOCKER_HOST={host}")
