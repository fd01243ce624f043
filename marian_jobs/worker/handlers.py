"""What a worker knows how to do: for each job type one handler, with its options, checked when it is registered."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

from marian_jobs import checks
from marian_jobs.backoff import Backoff
from marian_jobs.job import Job
from marian_jobs.worker.context import Context
from marian_jobs.worker.payloads import reader

Function = Callable[..., Any]


class HasContext(Protocol):
    """What a handler is called with: the job, and the context made when it is asked for."""

    @property
    def job(self) -> Job: ...

    @property
    def context(self) -> Context: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """A function for one job type. `timeout` None: as long as it takes; `limit` None: as many at once as slots."""

    type: str
    function: Function
    timeout: timedelta | None = None
    backoff: Backoff = field(default_factory=Backoff)
    limit: int | None = None
    takes_context: bool = False
    runs_in: Literal["loop", "thread", "process"] = "loop"
    memory_limit: int | None = None
    read: Callable[[Job], Any] | None = None

    def argument(self, job: Job) -> Any:
        """What the function takes first: the job, or its payload as the type that the function asks for."""
        return job if self.read is None else self.read(job)

    def call(self, run: "HasContext") -> Any:
        """The function's result, or for an async one its awaitable."""
        argument = run.job if self.read is None else self.read(run.job)
        if self.takes_context:
            return self.function(argument, run.context)
        return self.function(argument)


class Handlers:
    """The handlers of a worker, by type."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

    def __getitem__(self, type: str) -> Handler:
        return self._by_type[type]

    def __bool__(self) -> bool:
        return bool(self._by_type)

    @property
    def types(self) -> list[str]:
        """The types there is a handler for."""
        return list(self._by_type)

    def types_of(self, function: Function) -> list[str]:
        """The types whose handler a function is."""
        return [type for type, handler in self._by_type.items() if handler.function is function]

    def add(self, others: "Handlers") -> None:
        """Adds the handlers of another worker; `ValueError` for a type that has one."""
        for type, handler in others._by_type.items():
            self._refuse_second(type)
            self._by_type[type] = handler

    def register(
        self,
        type: str,
        function: Function,
        *,
        timeout: timedelta | float | None,
        backoff: Backoff | None,
        limit: int | None,
        isolation: Literal["process"] | None,
        memory_limit: int | None,
    ) -> None:
        """Adds a handler; `ValueError` or `TypeError` for options that make no sense, or a type that has one."""
        checks.text("type", type, longest=128)
        self._refuse_second(type)
        if not callable(function):
            raise TypeError(f"handler of {type!r}: expected a function, got {function!r}")
        if backoff is not None and not isinstance(backoff, Backoff):
            raise TypeError(f"backoff: expected a Backoff, got {backoff.__class__.__name__}")
        if limit is not None:
            checks.integer("limit", limit, 1, checks.INT32[1])
        takes_context = _takes_context(function)
        if isolation not in (None, "process"):
            raise ValueError("isolation: expected None or 'process'")
        if isolation is None and memory_limit is not None:
            raise ValueError("memory_limit: needs isolation='process'")
        if isolation is not None:
            if takes_context:
                raise TypeError(f"handler of {type!r}: a handler in a process of its own takes the job alone")
            if "<" in getattr(function, "__qualname__", "<"):
                raise TypeError(f"handler of {type!r}: must be a function of a module, so that a process can import it")
        self._by_type[type] = Handler(
            type=type,
            function=function,
            timeout=_timeout(timeout),
            backoff=backoff or Backoff(),
            limit=limit,
            takes_context=takes_context,
            runs_in=isolation or ("loop" if _is_async(function) else "thread"),
            memory_limit=None if memory_limit is None else checks.integer("memory_limit", memory_limit, 1, 2**63 - 1),
            read=reader(function),
        )

    def _refuse_second(self, type: str) -> None:
        if type in self._by_type:
            raise ValueError(f"type {type!r} has a handler already: {self._by_type[type].function!r}")


def _timeout(value: timedelta | float | None) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
        raise TypeError(f"timeout: expected a timedelta or seconds, got {type(value).__name__}")
    return checks.lease("timeout", value if isinstance(value, timedelta) else _seconds(value))


def _seconds(value: float) -> timedelta:
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):
        raise ValueError("timeout: expected seconds, a finite number that a timedelta can hold") from None


def _takes_context(function: Function) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin without a signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if not positional and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise TypeError(f"handler {function!r}: must take the job as its first argument")
    if len(required) > 2 or any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters):
        raise TypeError(f"handler {function!r}: takes the job, and if it likes the context, and nothing else")
    return len(required) == 2


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
