// The list on screen. Rows are kept by id and changed in place, so that focus and opened details survive an update.

const WORDS = { queued: "Queued", running: "Running", retrying: "Retrying", succeeded: "Succeeded", dead: "Dead" };
const MARKS = { queued: "○", running: "◐", retrying: "↻", succeeded: "✓", dead: "✕" };
// Where each state stands on the line of three stations, and what the present station is called.
const STATIONS = {
  queued: [0, "Queued"],
  running: [1, "Running"],
  retrying: [1, "Waiting"],
  succeeded: [2, "Succeeded"],
  dead: [2, "Dead"],
};
const NAMES = ["Queued", "Running", "Succeeded"];

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

/** A moment as people say it: "5 minutes ago", "in 2 hours". */
export function ago(moment, now = Date.now()) {
  const seconds = Math.round((new Date(moment) - now) / 1000);
  if (Math.abs(seconds) < 2) return "just now";
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= 0.95 * size);
  return relative.format(Math.round(seconds / size), unit);
}

export class Rows {
  #list;
  #template;
  #rows = new Map();

  constructor(list, template) {
    this.#list = list;
    this.#template = template;
  }

  clear() {
    this.#rows.clear();
    this.#list.replaceChildren();
  }

  /** Shows these jobs in this order; returns a sentence for each that changed its state. */
  show(jobs) {
    const news = [];
    const kept = new Map();
    jobs.forEach((job, place) => {
      const row = this.#rows.get(job.id) ?? this.#make();
      const before = row.dataset.status;
      fill(row, job);
      if (before && before !== job.status) {
        news.push(`${job.type} is now ${job.status}`);
        flash(row);
      }
      if (this.#list.children[place] !== row) this.#list.insertBefore(row, this.#list.children[place] ?? null);
      kept.set(job.id, row);
    });
    for (const [id, row] of this.#rows) if (!kept.has(id)) row.remove();
    this.#rows = kept;
    return news;
  }

  #make() {
    return this.#template.content.firstElementChild.cloneNode(true);
  }
}

function fill(row, job) {
  row.dataset.status = job.status;
  row.dataset.id = job.id;
  say(row, ".type", job.type);
  say(row, ".word", WORDS[job.status]);
  say(row, ".mark", MARKS[job.status]);
  const created = row.querySelector(".created");
  created.dateTime = job.created_at;
  created.title = new Date(job.created_at).toLocaleString();
  say(row, ".created", `Created ${ago(job.created_at)}`);
  say(row, ".detail", ` · ${detail(job)}`);
  stations(row, job);
  explain(row, job);
}

function detail(job) {
  const tries = `attempt ${job.attempts} of ${job.max_attempts}`;
  const due = new Date(job.run_after) > Date.now() ? ago(job.run_after) : "as soon as a worker is free";
  if (job.status === "queued") return `starts ${due}`;
  if (job.status === "retrying") return `${tries} failed, next ${due}`;
  if (job.status === "running") return tries;
  return `${job.status === "dead" ? "ended" : "done"} ${ago(job.updated_at)}`;
}

function stations(row, job) {
  const [present, name] = STATIONS[job.status];
  row.querySelectorAll(".steps li").forEach((station, i) => {
    station.classList.toggle("past", i < present && i <= job.attempts); // what was cancelled early never ran
    if (i === present) station.setAttribute("aria-current", "step");
    else station.removeAttribute("aria-current");
    say(station, ".name", i === present ? name : NAMES[i]);
  });
}

function explain(row, job) {
  const why = row.querySelector(".why");
  why.hidden = !job.error;
  if (!job.error) return;
  const label = job.status === "dead" ? "Error" : "Last error";
  say(row, ".reason", `${label}: ${job.error.split("\n", 1)[0].slice(0, 160)}`);
  say(row, "pre", job.error);
}

/** Writes only what differs, which spares the reader's selection and the screen reader's patience. */
function say(root, selector, text) {
  const place = root.querySelector(selector);
  if (place.textContent !== text) place.textContent = text;
}

function flash(row) {
  row.classList.remove("changed");
  void row.offsetWidth; // starts the animation anew
  row.classList.add("changed");
}
