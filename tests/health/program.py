"""The tests' worker with its health served from Python: it prints where, and calls itself stuck after a second."""

import asyncio
from datetime import timedelta

from marian_jobs.health import serve_health
from tests.worker.app import worker


async def main() -> None:
    async with serve_health(worker, "127.0.0.1:0", stuck_after=timedelta(seconds=1)) as server:
        print(f"health is served at {server.url}", flush=True)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
