// The Node side of benchmarks/program.py: the same actions and answers.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const PING_EVERY = 25;
const REPORT_EVERY = 10;

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
// process.hrtime reads the monotonic clock that Python's time.monotonic_ns reads; a number holds it exactly enough.
const sayStart = (job) => say({ job, at: Number(process.hrtime.bigint()) });

async function seconds(work) {
  const begun = performance.now();
  await work();
  return (performance.now() - begun) / 1000;
}

async function work(program, dsn, counted) {
  const lines = createInterface({ input: process.stdin });
  const ended = new Promise((resolve) => lines.once("close", resolve));
  const told = new Promise((resolve) => lines.once("line", resolve));
  say({ ready: true });
  await told;
  let count = 0;
  let said = 0;
  if (counted) {
    setInterval(() => {
      if (count !== said) say({ done: (said = count) });
    }, REPORT_EVERY);
  }
  await program.work(dsn, counted ? () => { count += 1; } : sayStart, ended);
}

export const versionOf = (name) =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url), "utf8")).version;

export async function main(program) {
  const [action, dsn, number] = process.argv.slice(2);
  const count = Number(number ?? 0);
  switch (action) {
    case "version":
      say({ version: program.version });
      break;
    case "install":
      await program.install(dsn);
      break;
    case "bulk":
      say({ seconds: await program.enqueueing(dsn, (enqueue) => seconds(() => enqueue.many(count))) });
      break;
    case "single":
      say({
        seconds: await program.enqueueing(dsn, (enqueue) =>
          seconds(async () => {
            for (let job = 0; job < count; job += 1) await enqueue.one(job);
          }),
        ),
      });
      break;
    case "ping":
      await program.enqueueing(dsn, async (enqueue) => {
        for (let job = 0; job < count; job += 1) {
          await enqueue.one(job);
          sayStart(job);
          await sleep(PING_EVERY);
        }
      });
      break;
    case "work":
    case "listen":
      await work(program, dsn, action === "work");
      break;
    default:
      throw new Error(`unknown action ${action}`);
  }
  process.exit(0);
}
