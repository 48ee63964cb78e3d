// The live page: a chart and a table for each query, the links, and a box for queries over the stored windows.
// Texts from the wire are inserted with textContent only.
"use strict";

const ROW = 28; // height of a row in px, as in page.css
const SHOWN = 40; // rows of a long table that exist at the same time
const GROUPS = 8; // lines of a chart, in addition to the others
const BOUNDS = ["window_start", "window_end"]; // columns that the caption of a window contains
const REDRAW = 1000; // least time between two updates of a query, in ms
const BUSY = 20; // and at least this multiple of the time of the last update, so that pages do not slow the pipeline
const LIGHT = ["#0b62a4", "#b3261e", "#2e7d32", "#7b3fa0", "#9a5b00", "#00757a", "#8f2d6b", "#4d5b00", "#5f5f5b"];
const DARK = ["#7db7f5", "#ff9a92", "#8fd694", "#d0a4f0", "#f2b866", "#6fd3d8", "#f29ac8", "#c6d45f", "#b9b9b3"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [], [8, 4], [2, 3], [10, 3, 2, 3], [1, 2]];

const AXIS_TIMES = [ // increment in s, format, and formats when the year, month, day, hour, minute or second changes
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [0.001, "{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);
const panels = new Map();
let paused = false;
let missed = 0;
let closed = 0;
let firing = 0;

function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

function shown(value, kind) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || kind === "key") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(6)).toLocaleString("en");
}

function utc(seconds) {
  return seconds === null || seconds === undefined ? "" : new Date(seconds * 1000).toISOString().replace(".000Z", "Z");
}

async function get(path) {
  const response = await fetch(path);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// A table whose rows exist only while they are visible, so that 10,000 rows scroll smoothly.
class LongTable {
  constructor(label) {
    this.region = element("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": label });
    this.table = element("table");
    this.caption = element("caption");
    this.head = element("thead");
    this.body = element("tbody");
    this.table.append(this.caption, this.head, this.body);
    this.region.append(this.table);
    this.answer = { columns: [], kinds: [], rows: [] };
    this.first = -1;
    this.region.addEventListener("scroll", () => this.draw(false), { passive: true });
  }

  show(answer, caption) {
    const names = JSON.stringify(answer.columns);
    this.answer = answer;
    this.caption.textContent = caption;
    this.table.setAttribute("aria-rowcount", answer.rows.length + 1);
    if (names !== this.names) {
      this.names = names;
      const row = element("tr", null, { "aria-rowindex": 1 });
      answer.columns.forEach((name, at) => {
        row.append(element("th", name, { scope: "col", class: answer.kinds[at] }));
      });
      this.head.replaceChildren(row);
    }
    this.draw(true);
  }

  draw(changed) {
    const rows = this.answer.rows;
    const last = Math.max(0, rows.length - SHOWN);
    const first = Math.min(last, Math.max(0, Math.floor(this.region.scrollTop / ROW) - 10));
    if (!changed && first === this.first) return;
    this.first = first;
    const made = [];
    if (first > 0) made.push(this.space(first));
    for (let at = first; at < Math.min(rows.length, first + SHOWN); at += 1) {
      const row = element("tr", null, { "aria-rowindex": at + 2 });
      rows[at].forEach((value, column) => {
        const kind = this.answer.kinds[column];
        row.append(element("td", shown(value, kind), { class: kind }));
      });
      made.push(row);
    }
    if (rows.length > first + SHOWN) made.push(this.space(rows.length - first - SHOWN));
    this.body.replaceChildren(...made);
  }

  space(rows) {
    const row = element("tr", null, { class: "space", "aria-hidden": "true" });
    const cell = element("td", null, { colspan: Math.max(1, this.answer.columns.length) });
    cell.style.height = rows * ROW + "px";
    row.append(cell);
    return row;
  }
}

class Panel {
  constructor(query) {
    this.query = query;
    this.column = query.rank;
    this.wait = REDRAW;
    this.drawnAt = 0;
    this.timer = null;
    const id = "query-" + query.name;
    this.section = element("section", null, { "aria-labelledby": id });
    this.section.append(element("h2", query.name, { id }));
    if (query.windowed && query.rank) this.addChart();
    this.table = new LongTable("newest window of " + query.name);
    this.section.append(this.table.region);
    const details = element("details");
    details.append(element("summary", "Query"), element("pre", query.sql));
    this.section.append(details);
  }

  addChart() {
    const figure = element("figure");
    this.caption = element("figcaption");
    this.chart = element("div", null, { class: "chart", "aria-hidden": "true" });
    this.legend = element("ul", null, { class: "legend" });
    if (this.query.values.length > 1) {
      const label = element("label", "Value ");
      const select = element("select");
      for (const value of this.query.values) select.append(element("option", value));
      select.value = this.column;
      select.addEventListener("change", () => {
        this.column = select.value;
        this.drawChart();
      });
      label.append(select);
      figure.append(label);
    }
    const details = element("details");
    details.append(element("summary", "The chart as a table"));
    this.numbers = new LongTable("values of the chart of " + this.query.name);
    details.append(this.numbers.region);
    figure.append(this.caption, this.chart, this.legend, details);
    this.section.append(figure);
  }

  async refresh() {
    this.drawnAt = performance.now();
    const newest = await get("api/newest?query=" + encodeURIComponent(this.query.name));
    if (newest.columns) this.showWindow(newest);
    else this.table.caption.textContent = "no window yet";
    await this.drawChart();
    this.wait = Math.max(REDRAW, BUSY * (performance.now() - this.drawnAt));
  }

  showWindow(answer) {
    const count = answer.groups === 1 ? "1 row" : shown(answer.groups) + " rows";
    const shownColumns = answer.columns.map((name, at) => at).filter((at) => !BOUNDS.includes(answer.columns[at]));
    const pick = (list) => shownColumns.map((at) => list[at]);
    const rows = { columns: pick(answer.columns), kinds: pick(answer.kinds), rows: answer.rows.map(pick) };
    const part = answer.groups > answer.rows.length ? ", the first " + shown(answer.rows.length) : "";
    const when = answer.end === null ? "newest rows" : "window " + utc(answer.start) + " to " + utc(answer.end);
    this.table.show(rows, when + ": " + count + part);
  }

  // A new window: show its rows at once, if the event has all of them. Otherwise the table would become shorter for a
  // moment, and lose its position. The other rows and the chart follow, at most once per REDRAW.
  update(event) {
    if (event.groups <= event.rows.length) this.showWindow(event);
    if (this.timer !== null) return;
    const wait = Math.max(0, this.wait - (performance.now() - this.drawnAt));
    this.timer = setTimeout(() => {
      this.timer = null;
      this.refresh().catch(report);
    }, wait);
  }

  async drawChart() {
    if (!this.chart) return;
    const range = byId("range").value;
    const parameters = new URLSearchParams({
      query: this.query.name, column: this.column, seconds: range, groups: GROUPS,
    });
    const chart = await get("api/chart?" + parameters);
    const lines = chart.lines.slice();
    if (chart.other && chart.other.some((value) => value)) lines.push({ name: "all others", values: chart.other });
    this.caption.textContent =
      chart.ends.length === 0 ? "no windows in this range" : chart.column + " in each window, " + shown(chart.ends.length) + " windows" +
      (chart.lines.length > 1 ? "; the groups with the largest sums over the range" : "");
    this.plot(chart.ends, lines);
    this.numbers.show({
      columns: ["window end", ...lines.map((line) => line.name)],
      kinds: ["text", ...lines.map(() => "number")],
      rows: chart.ends.map((end, at) => [utc(end), ...lines.map((line) => line.values[at])]),
    }, chart.column);
  }

  plot(ends, lines) {
    const colors = dark.matches ? DARK : LIGHT;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim();
    const grid = style.getPropertyValue("--line").trim();
    const key = JSON.stringify([lines.map((line) => line.name), dark.matches]);
    const data = [ends, ...lines.map((line) => line.values)];
    const single = ends.length < 60; // then points make windows between gaps visible
    if (this.uplot && this.key === key && this.single === single) {
      this.uplot.setData(data);
      return;
    }
    this.key = key;
    this.single = single;
    if (this.uplot) this.uplot.destroy();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    this.uplot = new uPlot({
      width: this.chart.clientWidth || 600,
      height: 260,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (plot, least, most) => [Math.min(0, least || 0), most > 0 ? most * 1.05 : 1] } },
      axes: [{ ...axis, values: AXIS_TIMES }, { ...axis, size: 76, values: (plot, values) => values.map((value) => shown(value)) }],
      series: [{}, ...lines.map((line, at) => ({
        label: line.name, stroke: colors[at % colors.length], dash: DASHES[at % DASHES.length], width: 1.5,
        points: { show: single, size: 5 }, spanGaps: false,
      }))],
    }, data, this.chart);
    this.legend.replaceChildren(...lines.map((line, at) => this.legendItem(line, colors[at % colors.length], at)));
  }

  legendItem(line, color, at) {
    const item = element("li");
    const space = "http://www.w3.org/2000/svg";
    const mark = document.createElementNS(space, "svg");
    mark.setAttribute("width", "28");
    mark.setAttribute("height", "8");
    mark.setAttribute("aria-hidden", "true");
    const stroke = document.createElementNS(space, "line");
    for (const [name, value] of Object.entries({
      x1: 0, x2: 28, y1: 4, y2: 4, stroke: color, "stroke-width": 3, "stroke-dasharray": DASHES[at % DASHES.length].join(" "),
    })) stroke.setAttribute(name, value);
    mark.append(stroke);
    item.append(mark, element("span", line.name));
    return item;
  }

  resize() {
    if (this.uplot) this.uplot.setSize({ width: this.chart.clientWidth, height: 260 });
  }
}

function report(error) {
  byId("status").textContent = "error: " + error.message;
}

let statusAt = -Infinity;
let statusTimer = null;
let connection = "connecting";

// The status line changes at most every 10 s, unless the connection changes, so that screen readers can follow it.
function showStatus(force) {
  const wait = 10000 - (performance.now() - statusAt);
  if (!force && wait > 0) {
    if (statusTimer === null) statusTimer = setTimeout(() => showStatus(true), wait);
    return;
  }
  clearTimeout(statusTimer);
  statusTimer = null;
  statusAt = performance.now();
  let text = paused ? "paused" : connection;
  if (closed) text += ", " + shown(closed) + (closed === 1 ? " window" : " windows") + " since the page was opened";
  if (firing) text += ", " + shown(firing) + (firing === 1 ? " alert is firing" : " alerts are firing");
  if (missed) text += ", " + shown(missed) + " windows missed: reload the page for all";
  byId("status").textContent = text;
}

async function showState() {
  const state = await get("api/state");
  const rows = state.links.map((link) => {
    const row = element("tr");
    row.append(element("th", link.name, { scope: "row" }));
    for (const name of ["records", "packets", "bytes"]) row.append(element("td", shown(link[name]), { class: "number" }));
    row.append(element("td", utc(link.watermark)), element("td", shown(link.lag), { class: "number" }));
    return row;
  });
  byId("links").tBodies[0].replaceChildren(...rows);
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
  const rows = [...answer.firing, ...answer.ended].map((alert) => ALERT_COLUMNS.map((name) => (
    name === "evidence" ? Object.entries(alert.evidence[0] || {}).map((pair) => pair.join(" ")).join(", ") : alert[name]
  )));
  const kinds = ALERT_COLUMNS.map((name) => (name === "rows" ? "number" : "text"));
  const caption = shown(firing) + " firing, and the last " + answer.ended.length + " that have ended";
  alertTable.show({ columns: ALERT_COLUMNS, kinds, rows }, caption);
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
    const answer = await get("api/query?sql=" + encodeURIComponent(byId("sql").value));
    const table = new LongTable("answer");
    const read = Object.entries(answer.windows).map(([name, count]) => shown(count) + " windows of " + name).join(", ");
    table.show(answer, answer.rows.length + (answer.cut ? " rows, there are more" : " rows") + (read ? "; read: " + read : ""));
    place.replaceChildren(table.region);
    status.textContent = "done";
  } catch (error) {
    place.replaceChildren(element("p", error.message, { class: "error" }));
    status.textContent = "the query failed";
  }
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
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    byId("pause").textContent = paused ? "Resume" : "Pause";
    showStatus(true);
    if (!paused) refreshAll();
  });
  window.addEventListener("resize", () => panels.forEach((panel) => panel.resize()));
  dark.addEventListener("change", refreshAll);
  listen(state.newest);
  await refreshAll();
  setInterval(() => { if (!paused) showState().catch(report); }, 5000);
}

begin().catch(report);
