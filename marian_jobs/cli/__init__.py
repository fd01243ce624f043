"""The command `marian`."""

import sys

from marian_jobs.cli.app import app
from marian_jobs.cli.output import complain
from marian_jobs.errors import MarianError
from marian_jobs.settings import NotConfigured


def main() -> None:
    """Runs the command line: exit code 0 for done, 1 for refused or failed, 2 for wrong usage."""
    try:
        app()
    except NotConfigured as e:
        complain(e)
        sys.exit(2)
    except (MarianError, ValueError, TypeError) as e:
        complain(e)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has enough
        sys.exit(0)


__all__ = ["main"]
