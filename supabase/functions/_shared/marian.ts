// A worker for Supabase Edge Functions: claims jobs by RPC, runs the handler of each type, records what came of it,
// and ends before the platform ends it.
//
//   const worker = new MarianWorker(serviceClient()).handler("embed", async (job, context) => { ... });
//   Deno.serve(serve(worker));
//
// Two bounds on time, counted from the start of a run: after `budgetMs` no job is claimed any more; at `limitMs` the
// handlers still running are told to stop and their jobs are given back to the queue, at no cost to their attempts.

import type { SupabaseClient } from "@supabase/supabase-js";
import { type Job, QueueClient } from "./marian_rpc.ts";
import { type Outcome, outcomeOf } from "./marian_outcome.ts";

export { enqueue, type EnqueueOptions, type Job, QueueError, serviceClient } from "./marian_rpc.ts";
export { Dead, Retry, Snooze } from "./marian_outcome.ts";
export { serve } from "./marian_serve.ts";

/** What a handler may know while it runs: `signal` aborts when its run is pointless or its time is over. */
export interface Context {
  signal: AbortSignal;
  client: SupabaseClient;
}

export type Handler = (job: Job, context: Context) => unknown;

export interface WorkerOptions {
  /** How long a claim holds a job before others may take it; extended while its handler runs. 30 s. */
  leaseMs?: number;
  /** How long jobs are claimed. 100 s: below the 150 s of the free plan's wall clock, with room for the last job. */
  budgetMs?: number;
  /** When a run is over, whatever still runs. 140 s. */
  limitMs?: number;
  /** How many jobs run at once. 4: their waiting overlaps, their 2 s of CPU do not. */
  concurrency?: number;
}

/** What a run did. `ended` tells why: the queue had nothing due, or the time was over. */
export interface Summary {
  reclaimed: number;
  claimed: number;
  succeeded: number;
  retrying: number;
  dead: number;
  released: number;
  lost: number;
  ended: "empty" | "time";
}

const DEFAULTS: Required<WorkerOptions> = { leaseMs: 30_000, budgetMs: 100_000, limitMs: 140_000, concurrency: 4 };

export class MarianWorker {
  readonly #queue: QueueClient;
  readonly #options: Required<WorkerOptions>;
  readonly #handlers = new Map<string, Handler>();

  constructor(client: SupabaseClient, options: WorkerOptions = {}) {
    this.#queue = new QueueClient(client);
    this.#options = { ...DEFAULTS, ...options };
    for (const [name, value] of Object.entries(this.#options)) {
      if (!Number.isInteger(value) || value < 1) throw new RangeError(`${name} must be a whole number above 0`);
    }
    if (this.#options.budgetMs > this.#options.limitMs) throw new RangeError("budgetMs must not be above limitMs");
  }

  /** Registers the handler of a type; a second one for the same type throws. */
  handler(type: string, run: Handler): this {
    if (this.#handlers.has(type)) throw new Error(`a handler for ${type} is registered already`);
    this.#handlers.set(type, run);
    return this;
  }

  /** Runs what is due until nothing is or the time is over; throws `QueueError` when the queue cannot be reached. */
  async run(): Promise<Summary> {
    if (this.#handlers.size === 0) throw new Error("this worker has no handlers");
    const started = performance.now();
    const summary: Summary = {
      reclaimed: await this.#queue.reclaim(),
      claimed: 0,
      succeeded: 0,
      retrying: 0,
      dead: 0,
      released: 0,
      lost: 0,
      ended: "empty",
    };
    const lanes = Array.from({ length: this.#options.concurrency }, () => this.#lane(started, summary));
    const broken = (await Promise.allSettled(lanes)).find((lane) => lane.status === "rejected");
    if (broken) throw broken.reason; // after every lane has reported what it held
    return summary;
  }

  async #lane(started: number, summary: Summary): Promise<void> {
    const types = [...this.#handlers.keys()];
    while (performance.now() < started + this.#options.budgetMs) {
      const job = await this.#queue.claim(types, this.#options.leaseMs);
      if (job === null) return;
      summary.claimed++;
      const left = started + this.#options.limitMs - performance.now();
      summary[await this.#record(job, await this.#handle(job, left))]++;
    }
    summary.ended = "time";
  }

  /** Runs the handler, keeping its lease; ends at once, whatever the handler does, when the job or the time is lost. */
  async #handle(job: Job, leftMs: number): Promise<Outcome> {
    const stop = new AbortController(); // its reason is the outcome
    const stopped = new Promise<Outcome>((resolve) => {
      stop.signal.addEventListener("abort", () => resolve(stop.signal.reason as Outcome));
    });
    const keeper = setInterval(() => this.#keep(job, stop), this.#options.leaseMs / 3);
    const end = setTimeout(() => stop.abort({ kind: "released", delayMs: 0 } satisfies Outcome), Math.max(0, leftMs));
    try {
      return await Promise.race([stopped, this.#outcome(job, stop.signal)]);
    } finally {
      clearInterval(keeper);
      clearTimeout(end);
    }
  }

  async #outcome(job: Job, signal: AbortSignal): Promise<Outcome> {
    try {
      await this.#handlers.get(job.type)!(job, { signal, client: this.#queue.client });
      return { kind: "succeeded" };
    } catch (error) {
      console.error(`marian: job ${job.id} (${job.type}), attempt ${job.attempts}:`, error);
      return outcomeOf(error);
    }
  }

  async #keep(job: Job, stop: AbortController): Promise<void> {
    try {
      if (!(await this.#queue.extend(job, this.#options.leaseMs))) stop.abort({ kind: "lost" } satisfies Outcome);
    } catch (error) {
      console.warn(`marian: the lease of job ${job.id} could not be extended now:`, error); // the next turn tries again
    }
  }

  async #record(job: Job, outcome: Outcome): Promise<"succeeded" | "retrying" | "dead" | "released" | "lost"> {
    switch (outcome.kind) {
      case "succeeded":
        return await this.#queue.complete(job) ? "succeeded" : "lost";
      case "failed": {
        const status = await this.#queue.fail(job, outcome.error, outcome.retryInMs, outcome.dead);
        return status === "dead" || status === "retrying" ? status : "lost";
      }
      case "released":
        return await this.#queue.release(job, outcome.delayMs) ? "released" : "lost";
      case "lost":
        return "lost";
    }
  }
}
