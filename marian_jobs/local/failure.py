"""Why the local stack cannot start."""

from marian_jobs.errors import MarianError


class LocalStackError(MarianError):
    """A part of the local stack cannot start; the text says why and what to do."""
