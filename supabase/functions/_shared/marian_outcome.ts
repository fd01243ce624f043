// What became of a run, as data: decided first, recorded afterwards. And the errors by which a handler says it.

/** Thrown by a handler: this attempt failed, try again after `afterMs` (left out: the queue's backoff). */
export class Retry extends Error {
  override name = "Retry";
  constructor(reason = "retry", readonly afterMs?: number) {
    super(reason);
  }
}

/** Thrown by a handler: not now, again after `delayMs`; costs the job no attempt. */
export class Snooze extends Error {
  override name = "Snooze";
  constructor(readonly delayMs: number) {
    super(`snoozed for ${delayMs} ms`);
  }
}

/** Thrown by a handler: no retry will help; the job is dead at once, with this reason. */
export class Dead extends Error {
  override name = "Dead";
}

export type Outcome =
  | { kind: "succeeded" }
  | { kind: "failed"; error: string; retryInMs?: number; dead: boolean }
  | { kind: "released"; delayMs: number }
  | { kind: "lost" }; // the job is no longer ours; there is nothing to record

const LONGEST = 8192, HEAD = 4096, TAIL = 4089;

/** The text with what Postgres cannot store replaced, and bounded: head and tail of a longer one. */
export function storable(text: string): string {
  const bounded = text.length <= LONGEST ? text : `${text.slice(0, HEAD)}\n[...]\n${text.slice(-TAIL)}`;
  return bounded.replaceAll("\0", "\uFFFD").toWellFormed();
}

/** What a handler's exception means. */
export function outcomeOf(error: unknown): Outcome {
  if (error instanceof Snooze) return { kind: "released", delayMs: error.delayMs };
  if (error instanceof Dead) return { kind: "failed", error: storable(error.message), dead: true };
  if (error instanceof Retry) {
    return { kind: "failed", error: storable(error.message), retryInMs: error.afterMs, dead: false };
  }
  return { kind: "failed", error: storable(describe(error)), dead: false };
}

function describe(error: unknown): string {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : `thrown: ${String(error)}`;
  } catch {
    return "an exception that cannot be described"; // its own toString threw
  }
}
