"""Typed payloads: a handler whose first parameter is a dataclass or a Pydantic model gets the payload as one.

A payload that does not fit never will: its job is dead at once, and the error says where it does not fit, without
repeating what was there.
"""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError

from marian_jobs.job import Job
from marian_jobs.worker.outcomes import Dead


def reader(function: Callable[..., Any]) -> Callable[[Job], Any] | None:
    """How a handler's first argument is made of a job; None where it takes the job itself."""
    annotation = _first_annotation(function)
    if annotation is None or annotation is Any or annotation is object or annotation is Job:
        return None
    if isinstance(annotation, type) and (is_dataclass(annotation) or issubclass(annotation, BaseModel)):
        return _reader_of(annotation)
    if annotation in ("Job", "marian_jobs.Job"):
        return None  # imported for the type checker alone
    raise TypeError(
        f"handler {function!r}: its first parameter takes a Job, a dataclass or a Pydantic model, not {annotation!r}"
    )


def _reader_of(model: type) -> Callable[[Job], Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(model)

    def read(job: Job) -> Any:
        try:
            return adapter.validate_python(dict(job.payload))
        except ValidationError as e:
            wrong = "; ".join(
                f"{'.'.join(map(str, error['loc'])) or 'payload'}: {error['msg']}"
                for error in e.errors(include_input=False, include_url=False, include_context=False)
            )
            raise Dead(f"the payload is no {model.__name__}: {wrong}") from None

    return read


def _first_annotation(function: Callable[..., Any]) -> Any:
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        first = next(iter(inspect.signature(function).parameters.values()))
    except (ValueError, StopIteration):  # a builtin without a signature, or a function that takes nothing
        return None
    if first.annotation is inspect.Parameter.empty:
        return None
    try:
        return get_type_hints(called).get(first.name)
    except NameError:
        return first.annotation
