// A worker behind HTTP: started by a POST from whoever holds a service key, and by nobody else.

import { timingSafeEqual } from "node:crypto";
import type { MarianWorker } from "./marian.ts";
import { serviceKeys } from "./marian_rpc.ts";

// Supabase's runtime keeps an isolate alive for what it is told to wait for; plain Deno has no such thing.
declare const EdgeRuntime: { waitUntil(work: Promise<unknown>): void } | undefined;

/** A request handler for `Deno.serve`.
 *
 * POST with a service key as `apikey` or bearer runs the worker and answers its summary; with `Prefer: respond-async`
 * it answers 202 at once and the run goes on behind. Anybody else is answered 401.
 */
export function serve(worker: MarianWorker): (request: Request) => Promise<Response> {
  const keys = Promise.all(serviceKeys().map(digest));
  return async (request) => {
    if (request.method !== "POST") return answer(405, { error: "start the worker with POST" }, { allow: "POST" });
    if (!(await mayStart(request, await keys))) {
      return answer(401, { error: "only a service key may start the worker" });
    }
    const run = worker.run();
    if (!/\brespond-async\b/i.test(request.headers.get("prefer") ?? "")) return await summarised(run);
    const logged = run.then((summary) => console.log("marian:", JSON.stringify(summary)), report);
    if (typeof EdgeRuntime !== "undefined") EdgeRuntime.waitUntil(logged);
    return answer(202, { accepted: true });
  };
}

async function summarised(run: Promise<unknown>): Promise<Response> {
  try {
    return answer(200, await run);
  } catch (error) {
    report(error);
    return answer(500, { error: error instanceof Error ? error.message : "the run failed" });
  }
}

const report = (error: unknown) => console.error("marian: the run failed:", error);

async function mayStart(request: Request, keys: Uint8Array[]): Promise<boolean> {
  const bearer = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  const shown = await Promise.all(
    [request.headers.get("apikey"), bearer].filter((key) => !!key).map((k) => digest(k!)),
  );
  // Digests are of one length, and every pair is compared: how long it takes tells nothing about a key.
  return shown.flatMap((given) => keys.map((key) => timingSafeEqual(given, key))).includes(true);
}

async function digest(key: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key)));
}

function answer(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return Response.json(body, { status, headers });
}
