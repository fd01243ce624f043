// pg-boss as a program under test: batches of 1,000, fetched without pause while they are full, woken by LISTEN.
import { PgBoss } from "pg-boss";
import { main, versionOf } from "./program.mjs";

const BATCH = 1000;
const CHUNK = 10_000;
const QUEUE = "noop";

async function started(dsn, options = {}) {
  const boss = new PgBoss({ connectionString: dsn, ...options });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  return boss;
}

await main({
  version: versionOf("pg-boss"),

  async install(dsn) {
    const boss = await started(dsn);
    await boss.createQueue(QUEUE, { notify: true });
    await boss.stop({ graceful: false });
  },

  async enqueueing(dsn, use) {
    const boss = await started(dsn, { supervise: false, schedule: false });
    await boss.getQueue(QUEUE);
    return use({
      one: (job) => boss.send(QUEUE, { job }),
      async many(count) {
        for (let first = 0; first < count; first += CHUNK) {
          const length = Math.min(CHUNK, count - first);
          await boss.insert(QUEUE, Array.from({ length }, (_, i) => ({ data: { job: first + i } })));
        }
      },
    });
  },

  async work(dsn, handled, ended) {
    const boss = await started(dsn, { useListenNotify: true });
    await boss.work(QUEUE, { batchSize: BATCH, burstWhenBatchFull: true, localConcurrency: 4 }, async (jobs) => {
      for (const { data } of jobs) handled(data.job);
    });
    await ended;
    await boss.stop({ graceful: true, timeout: 5000 });
  },
});
