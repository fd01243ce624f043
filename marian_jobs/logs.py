"""Logs on the standard `logging`: readable in a terminal, JSON for machines; a job's id, type and attempt as fields.

A line leaves without what looks like a credential, tracebacks included: other libraries' errors quote what they got.
"""

import logging
import sys
from typing import Any, Literal

from pythonjsonlogger.json import JsonFormatter
from rich.console import Console
from rich.logging import RichHandler

from marian_jobs.redaction import redact

FIELDS = ("job_id", "job_type", "attempt", "duration")
_RENAMED = {"asctime": "time", "levelname": "level", "name": "logger"}


class _Named(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The message, behind it the fields it carries."""
        text = super().format(record)
        named = " ".join(f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        return redact(f"{text} [{named}]" if named else text)


class _Json(JsonFormatter):
    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """The fields, texts without credentials."""
        return {name: redact(value) if isinstance(value, str) else value for name, value in log_data.items()}


def set_up(style: Literal["console", "json"] = "console", level: str = "INFO") -> None:
    """Sends the log to standard error in the given style; a program that embeds the library sets up its own."""
    logging.basicConfig(level=level, handlers=[_handler(style)], force=True)
    # The worker says once that the database is gone; the pool would say it at every try.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _handler(style: Literal["console", "json"]) -> logging.Handler:
    handler: logging.Handler = logging.StreamHandler()
    if style == "json":
        handler.setFormatter(_Json("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=_RENAMED))
    elif sys.stderr.isatty():
        handler = RichHandler(console=Console(stderr=True), show_path=False, markup=False, highlighter=None)
        handler.setFormatter(_Named("%(message)s"))
    else:  # a file has no width: a line stays a line
        handler.setFormatter(_Named("%(asctime)s %(levelname)s %(message)s"))
    return handler
