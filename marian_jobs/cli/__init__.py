"""The command `marian`."""

import io
import os
import sys

from marian_jobs.cli.app import app
from marian_jobs.cli.output import complain
from marian_jobs.errors import MarianError
from marian_jobs.settings import NotConfigured


def main() -> None:
    """Runs the command line: exit code 0 for done, 1 for refused or failed, 2 for wrong usage, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a job's text may hold what the terminal cannot show
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read us has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run() -> None:
    try:
        app()
    except NotConfigured as e:
        complain(e)
        sys.exit(2)
    except BrokenPipeError:
        raise
    except (MarianError, ValueError, TypeError, OSError) as e:
        complain(e)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["main"]
