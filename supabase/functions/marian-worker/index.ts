// The edge worker of this project. Put your handlers here; see docs/edge.md for how to run it each minute.

import { Dead, MarianWorker, Retry, serve, serviceClient } from "../_shared/marian.ts";

const setting = (name: string) => Number(Deno.env.get(name)) || undefined;
const options = Object.entries({
  leaseMs: setting("MARIAN_LEASE_MS"),
  budgetMs: setting("MARIAN_BUDGET_MS"),
  limitMs: setting("MARIAN_LIMIT_MS"),
  concurrency: setting("MARIAN_CONCURRENCY"),
}).filter(([, value]) => value !== undefined);

const worker = new MarianWorker(serviceClient(), Object.fromEntries(options));

/** Writes the payload to the log: to see that all is connected. */
worker.handler("echo", (job) => console.log("echo:", JSON.stringify(job.payload)));

/** POSTs `payload.body` to `payload.url`. Where to may not be the enqueuer's choice alone: MARIAN_WEBHOOK_HOSTS lists the hosts. */
worker.handler("webhook", async (job, { signal }) => {
  const response = await fetch(allowed(job.payload.url), {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": job.id },
    body: JSON.stringify(job.payload.body ?? {}),
    redirect: "manual", // a redirect could lead to a host that is not listed
    signal: AbortSignal.any([signal, AbortSignal.timeout(30_000)]),
  });
  await response.body?.cancel();
  if (response.ok) return;
  const said = `the receiver answered ${response.status}`;
  if (response.status === 429 || response.status === 503) throw new Retry(said, retryAfter(response));
  if (response.status < 500) throw new Dead(said);
  throw new Error(said);
});

function allowed(url: unknown): URL {
  const hosts = (Deno.env.get("MARIAN_WEBHOOK_HOSTS") ?? "").split(",").map((host) => host.trim());
  if (typeof url !== "string" || !URL.canParse(url)) throw new Dead("payload.url is not a URL");
  const target = new URL(url);
  if (!/^https?:$/.test(target.protocol) || !hosts.includes(target.host)) {
    throw new Dead("the host of payload.url is not listed in MARIAN_WEBHOOK_HOSTS");
  }
  return target;
}

/** Retry-After in seconds, at most an hour; without one, or with a date, the queue's own backoff. */
function retryAfter(response: Response): number | undefined {
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  return seconds >= 0 ? Math.min(seconds, 3600) * 1000 : undefined;
}

Deno.serve(serve(worker));
