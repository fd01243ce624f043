"""procrastinate as a program under test: psycopg connector, a worker of concurrency 30."""

import asyncio
import importlib.metadata
import logging

import procrastinate

from benchmarks.program import Handled, main, timed

CONCURRENCY = 30


def _app(dsn: str) -> procrastinate.App:
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=2, max_size=12))


class Procrastinate:
    """One task; `batch_defer` is its way to enqueue many."""

    async def install(self, dsn: str) -> None:
        async with _app(dsn).open_async() as app:
            await app.schema_manager.apply_schema_async()

    def version(self) -> str:
        return importlib.metadata.version("procrastinate")

    async def bulk(self, dsn: str, count: int) -> float:
        async with _app(dsn).open_async() as app:
            task = app.configure_task("noop")
            return await timed(task.batch_defer_async(*({"job": i} for i in range(count))))

    async def single(self, dsn: str, count: int, enqueued: Handled, pause: float) -> float:
        async def enqueue(app: procrastinate.App) -> None:
            task = app.configure_task("noop")
            for i in range(count):
                await task.defer_async(job=i)
                enqueued(i)
                if pause:
                    await asyncio.sleep(pause)

        async with _app(dsn).open_async() as app:
            return await timed(enqueue(app))

    async def work(self, dsn: str, handled: Handled, stop: asyncio.Event) -> None:
        app = _app(dsn)

        @app.task(name="noop")
        async def noop(job: int) -> None:
            handled(job)

        async with app.open_async():
            running = asyncio.create_task(
                app.run_worker_async(concurrency=CONCURRENCY, wait=True, install_signal_handlers=False)
            )
            await stop.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns of apps made in a main module
    main(Procrastinate())
