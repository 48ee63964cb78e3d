// The live page: the links, a panel for each query, alerts, and a box for queries over the stored windows.
"use strict";

import { byId, counted, element, get, report, shown } from "./text.js";
import { Panel } from "./panel.js";
import { LongTable } from "./table.js";
import { dark } from "./chart.js";
import { showLinks } from "./links.js";

const STATE_EVERY = 5000; // ms
const STATUS_EVERY = 10000; // so that screen readers can follow the status line

const panels = new Map();
let paused = false;
let missed = 0;
let closed = 0;
let firing = 0;
let statusAt = -Infinity;
let statusTimer = null;
let connection = "connecting";

// The status line changes at most every 10 s, unless the connection changes.
function showStatus(force) {
  const wait = STATUS_EVERY - (performance.now() - statusAt);
  if (!force && wait > 0) {
    if (statusTimer === null) statusTimer = setTimeout(() => showStatus(true), wait);
    return;
  }
  clearTimeout(statusTimer);
  statusTimer = null;
  statusAt = performance.now();
  let text = paused ? "paused" : connection;
  if (closed) text += ", " + counted(closed, "window") + " since the page was opened";
  if (firing) text += ", " + shown(firing) + (firing === 1 ? " alert is firing" : " alerts are firing");
  if (missed) text += ", " + counted(missed, "window") + " missed: reload the page for all";
  byId("status").textContent = text;
}

async function showState() {
  const state = await get("api/state");
  showLinks(byId("links").tBodies[0], state.links, state.now);
  if (state.alerts) await showAlerts();
  return state;
}

const ALERT_COLUMNS = ["status", "began", "ended", "severity", "rule", "summary", "rows", "evidence"];
let alertTable = null;

// Alerts that are firing, then those that have ended, the newest first. Evidence is the first row.
async function showAlerts() {
  const answer = await get("api/alerts");
  if (firing !== answer.total) {
    firing = answer.total;
    showStatus(false);
  }
  if (alertTable === null) {
    alertTable = new LongTable("alerts that are firing or have ended");
    byId("alerts").append(alertTable.region);
    byId("alerts").hidden = false;
    const item = element("li");
    item.append(element("a", "Alerts", { href: "#alerts" }));
    byId("sections").append(item);
  }
  const cell = (alert, name) => {
    if (name === "evidence") return Object.entries(alert.evidence[0] || {}).map((pair) => pair.join(" ")).join(", ");
    return name === "status" && alert.state === "provisional" ? alert.status + ", provisional" : alert[name];
  };
  const rows = [...answer.firing, ...answer.ended].map((alert) => ALERT_COLUMNS.map((name) => cell(alert, name)));
  const kinds = ALERT_COLUMNS.map((name) => (name === "rows" ? "number" : "text"));
  const caption = shown(firing) + " firing, and the last " + answer.ended.length + " that have ended";
  await alertTable.show({ columns: ALERT_COLUMNS, kinds, rows }, caption);
}

function receive(message) {
  if (message.type === "state") {
    connection = message.state;
    showStatus(true);
  } else if (message.type === "skipped") {
    missed += Number(message.data);
    showStatus(true);
  } else {
    const event = JSON.parse(message.data);
    closed += 1;
    showStatus(false);
    const panel = panels.get(event.query);
    if (panel && !paused) panel.update(event);
  }
}

function listen(last) {
  if (window.SharedWorker) {
    const port = new SharedWorker("worker.js").port;
    port.onmessage = (event) => receive(event.data);
    port.postMessage({ type: "open", last });
    window.addEventListener("pagehide", () => port.postMessage({ type: "close" }));
    return;
  }
  const source = new EventSource("events?last=" + last);
  source.onopen = () => receive({ type: "state", state: "connected" });
  source.onerror = () => receive({ type: "state", state: "disconnected" });
  source.addEventListener("window", (event) => receive({ type: "window", data: event.data }));
  source.addEventListener("skipped", (event) => receive({ type: "skipped", data: event.data }));
}

function refreshAll() {
  return Promise.all([...panels.values()].map((panel) => panel.refresh().catch(report)));
}

async function ask(event) {
  event.preventDefault();
  const status = byId("ask-status");
  status.textContent = "running";
  const place = byId("answer");
  try {
    const answer = await get("api/query", { sql: byId("sql").value });
    const table = new LongTable("answer");
    const read = Object.entries(answer.windows).map(([name, count]) => counted(count, "window") + " of " + name).join(", ");
    place.replaceChildren(table.region);
    await table.show(answer, answer.rows.length + (answer.cut ? " rows, there are more" : " rows") + (read ? "; read: " + read : ""));
    status.textContent = "done, " + shown(answer.rows.length) + " rows";
  } catch (error) {
    place.replaceChildren(element("p", error.message, { class: "error" }));
    status.textContent = "the query failed";
  }
}

function pause() {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Resume" : "Pause";
  showStatus(true);
  if (!paused) refreshAll();
}

async function begin() {
  const state = await showState();
  for (const query of state.queries) {
    const panel = new Panel(query);
    panels.set(query.name, panel);
    byId("queries").append(panel.section);
    const item = element("li");
    item.append(element("a", query.name, { href: "#query-" + encodeURIComponent(query.name) }));
    byId("sections").append(item);
  }
  const first = state.queries.find((query) => query.windowed) || state.queries[0];
  byId("sql").value = first ? 'SELECT * FROM "' + first.name + '" LIMIT 20' : "";
  byId("ask").addEventListener("submit", ask);
  byId("range").addEventListener("change", refreshAll);
  byId("pause").addEventListener("click", pause);
  dark.addEventListener("change", refreshAll);
  listen(state.newest);
  await refreshAll();
  performance.mark("drawn"); // bench/page.py measures the time until all panels are drawn
  setInterval(() => {
    if (paused) return;
    showState().catch(report);
    // A window becomes final without an event if it needs no correction.
    for (const panel of panels.values()) if (panel.provisional) panel.refresh().catch(report);
  }, STATE_EVERY);
}

begin().catch(report);
