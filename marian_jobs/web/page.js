// The page's states: signed out, loading, list, empty, error. One of them is shown at a time.

import { Jobs } from "./jobs.js";
import { Rows } from "./rows.js";
import { forget, keep, keptToken, nameOf, project, refusal } from "./session.js";

const $ = (id) => document.getElementById(id);
const rows = new Rows($("list"), $("row"));
let jobs = null;
let seen = 0; // when the list was last true

function signedOut(reason = "") {
  jobs?.stop();
  jobs = null;
  forget();
  rows.clear();
  for (const id of ["jobs", "account", "live"]) $(id).hidden = true;
  $("sign-in").hidden = false;
  $("sign-in-error").textContent = reason;
  $("token").focus();
}

async function signedIn(token) {
  const no = refusal(token);
  if (no) return signedOut(no);
  keep(token);
  let config;
  try {
    config = await project();
  } catch (error) {
    return signedOut(error.message);
  }
  $("sign-in").hidden = true;
  $("token").value = "";
  for (const id of ["jobs", "account"]) $(id).hidden = false;
  $("who").textContent = nameOf(token);
  jobs = new Jobs(config, token, { onJobs, onError });
  choose();
  jobs.start();
}

/** A new question: what is on screen answers another one. */
function choose() {
  jobs.status = document.querySelector("[name=status]:checked").value;
  jobs.limit = 50;
  rows.clear();
  show("loading");
}

function show(state) {
  for (const id of ["loading", "empty", "error"]) $(id).hidden = id !== state;
  if (state === "loading" || state === "empty") $("more").hidden = true;
}

function onJobs({ jobs: found, more }) {
  seen = Date.now();
  live("Live", false);
  const news = rows.show(found);
  if (news.length) $("news").textContent = news.length > 3 ? `${news.length} jobs have changed` : news.join(". ");
  show(found.length ? "list" : "empty");
  $("more").hidden = !more;
  if (found.length) return;
  $("empty-title").textContent = jobs.status ? `No ${jobs.status} jobs` : "No jobs yet";
  $("empty-text").textContent = jobs.status
    ? "Jobs in this state will appear here by themselves."
    : "As soon as something is enqueued for you, it will appear here by itself.";
}

function onError(error) {
  if (error.status === 401) return signedOut("Your session has ended. Sign in again.");
  live(seen ? `Not up to date since ${new Date(seen).toLocaleTimeString()}` : "Not connected", true);
  $("error-text").textContent = error.status
    ? `Your jobs could not be read: ${error.message}`
    : "The service cannot be reached. Trying again by itself.";
  show("error");
}

function live(text, stale) {
  $("live").hidden = false;
  $("live").classList.toggle("stale", stale);
  if ($("live-text").textContent !== text) $("live-text").textContent = text;
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signedIn($("token").value.trim());
});
$("sign-out").addEventListener("click", () => signedOut());
$("again").addEventListener("click", () => jobs.look());
$("more").addEventListener("click", () => {
  jobs.limit += 50;
  jobs.look();
});
for (const choice of document.querySelectorAll("[name=status]")) {
  choice.addEventListener("change", () => {
    choose();
    jobs.look();
  });
}

function open() {
  const token = keptToken();
  if (token) signedIn(token);
  else signedOut();
}
addEventListener("hashchange", () => {
  if (!location.hash.includes("access_token=")) return;
  jobs?.stop();
  open();
});
open();
