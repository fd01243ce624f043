"""Logs on the standard `logging`: readable in a terminal, JSON for machines; a job's id, type and attempt as fields."""

import logging
from typing import Literal

from pythonjsonlogger.json import JsonFormatter
from rich.logging import RichHandler

FIELDS = ("job_id", "job_type", "attempt", "duration")


class _Named(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The message, behind it the fields it carries."""
        text = super().format(record)
        named = " ".join(f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        return f"{text} [{named}]" if named else text


def set_up(style: Literal["console", "json"] = "console", level: str = "INFO") -> None:
    """Sends the log to the terminal in the given style; for programs, a library's user sets up its own."""
    handler: logging.Handler
    if style == "json":
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=_RENAMED))
    else:
        handler = RichHandler(show_path=False, rich_tracebacks=False, markup=False, highlighter=None)
        handler.setFormatter(_Named("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # The worker says once that the database is gone; the pool would say it at every try.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)


_RENAMED = {"asctime": "time", "levelname": "level", "name": "logger"}
