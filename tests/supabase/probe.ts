// An edge worker with the handlers that the tests ask for; a request says by header how the worker is to be.

import { createClient } from "@supabase/supabase-js";
import { Dead, enqueue, MarianWorker, Retry, serve, Snooze } from "../../supabase/functions/_shared/marian.ts";

const sleep = (ms: number) => new Promise((resume) => setTimeout(resume, ms));

function worker(request: Request): MarianWorker {
  const url = request.headers.get("x-url") ?? Deno.env.get("SUPABASE_URL")!;
  const client = createClient(url, Deno.env.get("SUPABASE_SERVICE_ROLE_KEY")!, { auth: { persistSession: false } });
  return new MarianWorker(client, JSON.parse(request.headers.get("x-options") ?? "{}"))
    .handler("mark", async (job) => {
      console.log("ran", job.id);
      await sleep(20);
    })
    .handler("nap", (job) => sleep(Number(job.payload.ms)))
    .handler("obedient", async (job, { signal }) => {
      console.log("began", job.id);
      await new Promise((stop) => signal.addEventListener("abort", stop));
      console.log("stopped", job.id);
    })
    .handler("retry", () => {
      throw new Retry("later", 3_600_000);
    })
    .handler("snooze", () => {
      throw new Snooze(3_600_000);
    })
    .handler("dead", () => {
      throw new Dead("no use");
    })
    .handler("throw", (job) => {
      throw new TypeError(String(job.payload.text).replaceAll("<NUL>", "\0").replaceAll("<LONE>", "\ud800"));
    })
    .handler("parent", async (_job, { client }) => {
      const first = await enqueue(client, "child", { n: 1 }, { key: "child-1", delayMs: 60_000 });
      const second = await enqueue(client, "child", { n: 2 }, { key: "child-1" });
      console.log("children", first.created, second.created, first.job.id === second.job.id);
    });
}

Deno.serve(async (request) => await serve(worker(request))(request));
