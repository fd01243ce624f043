// The queue's SQL functions over the project's API, as typed calls.

import { createClient, type SupabaseClient } from "@supabase/supabase-js";

/** A row of public.marian_jobs. Times are ISO 8601 texts; integers beyond 2^53 in a payload lose digits, as JSON does here. */
export interface Job {
  id: string;
  user_id: string | null;
  type: string;
  status: "queued" | "running" | "retrying" | "succeeded" | "dead";
  payload: Record<string, unknown>;
  idempotency_key: string | null;
  attempts: number;
  max_attempts: number;
  priority: number;
  run_after: string;
  lease_until: string | null;
  error: string | null;
  created_at: string;
  updated_at: string;
}

/** The API refused a call or could not be reached; `code` is the SQLSTATE or PostgREST's code where there is one. */
export class QueueError extends Error {
  override name = "QueueError";
  constructor(message: string, readonly status: number, readonly code: string) {
    super(message);
  }
}

const CALL_TIMEOUT_MS = 10_000;
const TRIES = 5;
const PASSING = [0, 429, 502, 503, 504]; // 0: no answer at all

/** A 400 without a code is how PostgREST passes on that its session with the database was cut. */
const isPassing = (error: QueueError) => PASSING.includes(error.status) || (error.status === 400 && error.code === "");

/** Calls a function of the queue and returns its rows; throws `QueueError`. */
async function once<T>(client: SupabaseClient, name: string, args: Record<string, unknown>): Promise<T[]> {
  const { data, error, status } = await client.rpc(name, args).abortSignal(AbortSignal.timeout(CALL_TIMEOUT_MS));
  if (error) throw new QueueError(`${name}: ${error.message}`, status, error.code ?? "");
  return (data ?? []) as T[];
}

/** The same, sent again when the network or the gateway fails: only for calls whose second sending changes nothing. */
async function untilAnswered<T>(client: SupabaseClient, name: string, args: Record<string, unknown>): Promise<T[]> {
  for (let tries = 1;; tries++) {
    try {
      return await once<T>(client, name, args);
    } catch (error) {
      if (tries === TRIES || !(error instanceof QueueError) || !isPassing(error)) throw error;
      await new Promise((resume) => setTimeout(resume, 100 * 2 ** tries));
    }
  }
}

const interval = (ms: number) => `${ms} milliseconds`;

/** What a worker says to the queue. A late report, whose attempt no longer holds the job, answers false. */
export class QueueClient {
  constructor(readonly client: SupabaseClient) {}

  /** Takes back the jobs whose lease is over; returns how many. */
  async reclaim(): Promise<number> {
    return (await once<Job>(this.client, "reclaim_expired", {})).length;
  }

  /** Leases the next due job of these types, or null. Never sent twice: a claim whose answer is lost waits for its lease. */
  async claim(types: string[], leaseMs: number): Promise<Job | null> {
    return (await once<Job>(this.client, "claim_job", { p_types: types, p_lease: interval(leaseMs) }))[0] ?? null;
  }

  async complete(job: Job): Promise<boolean> {
    const args = { p_id: job.id, p_attempt: job.attempts };
    return (await untilAnswered<Job>(this.client, "complete_job", args)).length > 0;
  }

  /** Records a failure; returns the job's new status, or null for a late report. */
  async fail(job: Job, error: string, retryInMs?: number, dead = false): Promise<Job["status"] | null> {
    const args = {
      p_id: job.id,
      p_attempt: job.attempts,
      p_error: error,
      p_retry_in: retryInMs === undefined ? null : interval(retryInMs),
      p_dead: dead,
    };
    return (await untilAnswered<Job>(this.client, "fail_job", args))[0]?.status ?? null;
  }

  async extend(job: Job, leaseMs: number): Promise<boolean> {
    const args = { p_ids: [job.id], p_attempts: [job.attempts], p_lease: interval(leaseMs) };
    return (await untilAnswered<string>(this.client, "extend_leases", args)).length > 0;
  }

  /** Gives the job back, due again after the delay, at no cost to its attempts. */
  async release(job: Job, delayMs: number): Promise<boolean> {
    const args = { p_ids: [job.id], p_attempts: [job.attempts], p_delay: interval(delayMs) };
    return (await untilAnswered<Job>(this.client, "release_jobs", args)).length > 0;
  }
}

/** What `enqueue` may be told beside type and payload. */
export interface EnqueueOptions {
  userId?: string;
  key?: string;
  priority?: number;
  maxAttempts?: number;
  delayMs?: number;
}

/** Makes a job, or finds the live one that owns the key; `created` tells which. Throws `QueueError`. */
export async function enqueue(
  client: SupabaseClient,
  type: string,
  payload: Record<string, unknown> = {},
  options: EnqueueOptions = {},
): Promise<{ job: Job; created: boolean }> {
  const id = crypto.randomUUID(); // our own id makes a second sending harmless
  const [job] = await untilAnswered<Job>(client, "enqueue_job", {
    p_type: type,
    p_payload: payload,
    p_user_id: options.userId ?? null,
    p_idempotency_key: options.key ?? null,
    p_priority: options.priority ?? 0,
    p_max_attempts: options.maxAttempts ?? 3,
    p_delay: options.delayMs === undefined ? null : interval(options.delayMs),
    p_id: id,
  });
  return { job, created: job.id === id };
}

/** The keys that act as service_role in this project, as its functions are given them. Throws when there is none. */
export function serviceKeys(): string[] {
  const named = Object.values(JSON.parse(Deno.env.get("SUPABASE_SECRET_KEYS") ?? "{}") as Record<string, string>);
  const keys = [...named, Deno.env.get("SUPABASE_SERVICE_ROLE_KEY")].filter((key): key is string => !!key);
  if (keys.length === 0) throw new Error("neither SUPABASE_SECRET_KEYS nor SUPABASE_SERVICE_ROLE_KEY is set");
  return keys;
}

/** A client that acts as service_role, from the environment every Edge Function has. */
export function serviceClient(): SupabaseClient {
  const url = Deno.env.get("SUPABASE_URL");
  if (!url) throw new Error("SUPABASE_URL is not set");
  return createClient(url, serviceKeys()[0], {
    auth: { persistSession: false, autoRefreshToken: false, detectSessionInUrl: false },
  });
}
