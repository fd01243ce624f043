// graphile-worker as a program under test, set up as its page on performance says.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { main, versionOf } from "./program.mjs";

const CHUNK = 10_000;
const quiet = new Logger(() => () => {});

const preset = (dsn) => ({
  worker: {
    connectionString: dsn,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
});

await main({
  version: versionOf("graphile-worker"),

  async install(dsn) {
    const utils = await makeWorkerUtils({ connectionString: dsn, logger: quiet });
    await utils.migrate();
    await utils.release();
  },

  async enqueueing(dsn, use) {
    const utils = await makeWorkerUtils({ connectionString: dsn, logger: quiet });
    await utils.withPgClient((client) => client.query("select 1"));
    return use({
      one: (job) => utils.addJob("noop", { job }),
      async many(count) {
        for (let first = 0; first < count; first += CHUNK) {
          const length = Math.min(CHUNK, count - first);
          await utils.addJobs(Array.from({ length }, (_, i) => ({ identifier: "noop", payload: { job: first + i } })));
        }
      },
    });
  },

  async work(dsn, handled, ended) {
    const runner = await run({
      preset: preset(dsn),
      noHandleSignals: true,
      taskList: { noop: (payload) => handled(payload.job) },
    });
    await ended;
    await runner.stop();
  },
});
