// Reading the user's jobs: a query every other moment, sooner where Realtime says that something has changed.

const COLUMNS = "id,type,status,attempts,max_attempts,run_after,error,created_at,updated_at";
const POLL = 2000;
const POLL_BESIDE_REALTIME = 15000;

/** Watches one user's newest jobs and reports `onJobs({jobs, more})` or `onError(error)` after every look. */
export class Jobs {
  #client;
  #onJobs;
  #onError;
  #timer;
  #looks = 0;
  #realtime;
  #live = false;
  status = "";
  limit = 50;

  constructor({ url, anonKey, realtime = true }, token, { onJobs, onError }) {
    this.#client = globalThis.supabase.createClient(url, anonKey, { accessToken: () => Promise.resolve(token) });
    this.#realtime = realtime;
    this.#onJobs = onJobs;
    this.#onError = onError;
  }

  start() {
    if (this.#realtime) this.#listen();
    document.addEventListener("visibilitychange", this.#seen);
    this.look();
  }

  stop() {
    this.#looks = Infinity;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#seen);
    this.#hangUp();
  }

  /** Looks now; of looks that overlap only the last one reports. */
  async look() {
    const turn = ++this.#looks;
    clearTimeout(this.#timer);
    try {
      const found = await this.#query();
      if (turn === this.#looks) this.#onJobs({ jobs: found.slice(0, this.limit), more: found.length > this.limit });
    } catch (error) {
      if (turn === this.#looks) this.#onError(error);
    }
    if (turn === this.#looks && !document.hidden) {
      this.#timer = setTimeout(() => this.look(), this.#live ? POLL_BESIDE_REALTIME : POLL);
    }
  }

  async #query() {
    let query = this.#client.from("marian_jobs").select(COLUMNS);
    if (this.status) query = query.eq("status", this.status);
    const { data, error, status } = await query
      .order("created_at", { ascending: false })
      .order("id")
      .limit(this.limit + 1)
      .retry(false) // the next look is the retry, and the reader learns at once that this one failed
      .abortSignal(AbortSignal.timeout(10000));
    if (error) throw Object.assign(new Error(error.message), { status });
    return data;
  }

  #seen = () => {
    if (!document.hidden) this.look();
  };

  #listen() {
    this.#client
      .channel("my-jobs")
      .on("postgres_changes", { event: "*", schema: "public", table: "marian_jobs" }, () => this.look())
      .subscribe((state) => {
        this.#live = state === "SUBSCRIBED";
        // A project without Realtime: polling alone will do, there is no point in knocking again and again.
        if (state === "CHANNEL_ERROR" || state === "TIMED_OUT") this.#hangUp();
      });
  }

  async #hangUp() {
    await this.#client.removeAllChannels();
    this.#client.realtime.disconnect();
  }
}
