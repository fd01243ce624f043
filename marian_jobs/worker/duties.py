"""What a worker is there to do: its handlers by type, the schedules of their jobs, the middleware around them."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, TypeVar
from uuid import UUID

from marian_jobs.backoff import Backoff
from marian_jobs.cron import LOOK_BACK, Schedule
from marian_jobs.job import JsonObject
from marian_jobs.worker.handlers import Function, Handlers
from marian_jobs.worker.middleware import Middleware
from marian_jobs.worker.observers import Observer, Observers
from marian_jobs.worker.scheduler import Scheduler

F = TypeVar("F", bound=Function)


class Duties:
    """The decorators by which a worker is told; `Worker` has them all."""

    def __init__(self, scheduler: Scheduler, middleware: Sequence[Middleware]) -> None:
        self._handlers = Handlers()
        self._scheduler = scheduler
        self._observers = Observers()
        self.middlewares: list[Middleware] = []
        for each in middleware:
            self.middleware(each)

    @property
    def types(self) -> list[str]:
        """The job types there is a handler for."""
        return self._handlers.types

    def handler(
        self,
        type: str,
        *,
        timeout: timedelta | float | None = None,
        backoff: Backoff | None = None,
        limit: int | None = None,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
    ) -> Callable[[F], F]:
        """Registers the decorated function, async or plain, as the handler of a job type.

        It takes the `Job`, and a `Context` too if it has a second parameter. It may raise `Retry`, `Snooze` or `Dead`;
        any other exception fails the attempt. `timeout` (timedelta or seconds) bounds it, `backoff` spaces its
        retries, `limit` bounds how many run at once in this worker. With `isolation="process"` it runs in a process
        of its own, which a timeout kills and which may crash, or exceed `memory_limit` bytes, without harm.
        """

        def register(function: F) -> F:
            self._handlers.register(
                type,
                function,
                timeout=timeout,
                backoff=backoff,
                limit=limit,
                isolation=isolation,
                memory_limit=memory_limit,
            )
            return function

        return register

    def schedule(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str = "",
        payload: JsonObject | None = None,
        user_id: UUID | str | None = None,
        priority: int = 0,
        max_attempts: int = 3,
        look_back: timedelta = LOOK_BACK,
    ) -> Callable[[F], F]:
        """Has a job of the decorated handler's type made at each time of a cron expression (five fields, or six with
        the seconds first) in a time zone, once however many workers there are.

        A function that is no handler yet becomes the handler of the type that bears its name. `name` (default: the
        type) tells schedules apart; a slot missed within `look_back` is made up once. See `marian_jobs.cron.Schedule`.
        """

        def register(function: F) -> F:
            types = self._handlers.types_of(function)
            if not types:
                types = [function.__name__]
                self.handler(types[0])(function)
            for type in types:
                self._scheduler.add(
                    Schedule(
                        expression,
                        type,
                        tz=tz,
                        name=name or type,
                        payload={} if payload is None else payload,
                        user_id=user_id,
                        priority=priority,
                        max_attempts=max_attempts,
                        look_back=look_back,
                    )
                )
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """Registers the decorated async function as middleware, inside those registered before."""
        if not callable(function):
            raise TypeError(f"middleware: expected a function of a context and call_next, got {function!r}")
        self.middlewares.append(function)
        return function

    def observe(self, observer: Observer) -> None:
        """Has the observer told of every job from now on."""
        self._observers.add(observer)

    def take_on(self, other: "Duties") -> None:
        """Does all that another does, too."""
        self._handlers.add(other._handlers)
        for schedule in other._scheduler.schedules:
            self._scheduler.add(schedule)
        self.middlewares.extend(other.middlewares)
        self._observers.take_on(other._observers)
