// The chart of a query: a canvas of uPlot, and a legend whose rows are the lines, with sums and the values at the cursor.
"use strict";

import { between, counted, drawing, element, scaled, shown, utc } from "./text.js";
import { LongTable } from "./table.js";

const HEIGHT = 260;
const LIGHT = ["#0b62a4", "#b3261e", "#2e7d32", "#7b3fa0", "#9a5b00", "#00757a", "#8f2d6b", "#4d5b00", "#5f5f5b"];
const DARK = ["#7db7f5", "#ff9a92", "#8fd694", "#d0a4f0", "#f2b866", "#6fd3d8", "#f29ac8", "#c6d45f", "#b9b9b3"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [], [8, 4], [2, 3], [10, 3, 2, 3], [1, 2]];
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

const AXIS_TIMES = [ // increment in s, format, and formats when the year, month, day, hour, minute or second changes
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [0.001, "{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

export const dark = window.matchMedia("(prefers-color-scheme: dark)");
export const palette = () => (dark.matches ? DARK : LIGHT);

export class Chart {
  constructor(name) {
    this.figure = element("figure");
    this.caption = element("figcaption");
    // The application role lets the arrow keys reach the chart with a screen reader.
    this.place = element("div", null, {
      class: "chart", tabindex: "0", role: "application", "aria-roledescription": "chart",
      "aria-label": "chart of " + name + ": the arrow keys read the values of each window",
    });
    this.spoken = element("p", null, { class: "spoken", role: "status" });
    this.legend = element("table", null, { class: "legend" });
    const { details, table } = LongTable.closed("The chart as a table", "values of the chart of " + name);
    this.numbers = table;
    this.body = element("div", null, { class: "chart-body" });
    this.body.append(this.place, this.legend);
    this.figure.append(this.caption, this.body, this.spoken, details);
    this.at = null; // the number of the window at the cursor
    this.place.addEventListener("keydown", (event) => this.step(event));
    this.width = 0; // until the panel is visible for the first time
    new ResizeObserver(([entry]) => this.resize(Math.floor(entry.contentRect.width))).observe(this.place);
  }

  // `chart` is the answer of the server; `value` has the name and the unit of its column.
  show(chart, value) {
    const lines = chart.lines.slice();
    if (chart.other && chart.other.values.some((number) => number)) lines.push(chart.other);
    const sum = lines.reduce((total, line) => total + line.total, 0);
    Object.assign(this, { ends: chart.ends, lines, unit: value.unit, sum: value.adds ? sum : null });
    this.caption.textContent = chart.ends.length === 0 ? "no windows in this range" : value.name + " of " +
      counted(chart.ends.length, "window") + ", which end from " + between(chart.ends[0], chart.ends[chart.ends.length - 1]);
    if (this.at !== null && this.at >= chart.ends.length) this.at = null;
    this.body.hidden = !chart.ends.length;
    this.plot();
    this.numbers.later(() => ({
      columns: ["window end", ...lines.map((line) => line.name)],
      kinds: ["text", ...lines.map(() => "number")],
      rows: chart.ends.map((end, at) => [utc(end), ...lines.map((line) => line.values[at])]),
    }), value.name);
  }

  plot() {
    const { ends, lines } = this;
    if (!this.width || !ends || !ends.length) return;
    const colors = palette();
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--quiet").trim();
    const grid = style.getPropertyValue("--line").trim();
    const single = ends.length < 60; // then points make windows between gaps visible
    const key = JSON.stringify([lines.map((line) => line.name), dark.matches, single, this.unit]);
    const data = [ends, ...lines.map((line) => line.values)];
    if (this.uplot && this.key === key) {
      this.uplot.setData(data);
      this.drawLegend();
      return;
    }
    this.key = key;
    if (this.uplot) this.uplot.destroy();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    this.uplot = new uPlot({
      width: this.width,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (plot, least, most) => [Math.min(0, least || 0), most > 0 ? most * 1.05 : 1] } },
      axes: [
        { ...axis, values: AXIS_TIMES, space: 70 },
        { ...axis, size: 84, values: (plot, values) => values.map((value) => scaled(value, this.unit)) },
      ],
      series: [{}, ...lines.map((line, at) => ({
        label: line.name, stroke: colors[at % colors.length], dash: DASHES[at % DASHES.length], width: 1.5,
        points: { show: single, size: 5 }, spanGaps: false,
      }))],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx)] },
    }, data, this.place);
    this.drawLegend();
  }

  drawLegend() {
    const head = element("thead");
    const titles = element("tr");
    titles.append(element("th", "group", { scope: "col" }));
    if (this.sum !== null) {
      titles.append(element("th", "sum", { scope: "col", class: "number" }));
      titles.append(element("th", "share", { scope: "col", class: "number" }));
    }
    this.when = element("th", "last", { scope: "col", class: "number" });
    titles.append(this.when);
    head.append(titles);
    const body = element("tbody");
    const colors = palette();
    this.cells = this.lines.map((line, at) => {
      const row = element("tr");
      const name = element("th", null, { scope: "row", title: line.name });
      name.append(mark(colors[at % colors.length], at), element("span", line.name));
      row.append(name);
      if (this.sum !== null) {
        row.append(element("td", scaled(line.total, this.unit), { class: "number", title: shown(line.total) }));
        row.append(element("td", this.sum ? (100 * line.total / this.sum).toFixed(1) + " %" : "", { class: "number" }));
      }
      const cell = element("td", null, { class: "number" });
      row.append(cell);
      body.append(row);
      return cell;
    });
    this.legend.replaceChildren(element("caption", "lines of the chart", { class: "hidden" }), head, body);
    this.drawValues();
  }

  drawValues() {
    const at = this.at === null ? this.ends.length - 1 : this.at;
    this.when.textContent = this.at === null ? "last" : clock(this.ends[at]);
    this.cells.forEach((cell, line) => {
      const value = this.lines[line].values[at];
      cell.textContent = scaled(value, this.unit);
      cell.title = shown(value);
    });
  }

  point(at) {
    const now = at === undefined ? null : at;
    if (this.at === now || !this.cells) return;
    this.at = now;
    this.drawValues();
  }

  // Keys move the cursor, and the status line speaks the values there.
  step(event) {
    if (!(event.key in STEPS) || !this.uplot || !this.ends.length) return;
    event.preventDefault();
    const last = this.ends.length - 1;
    const from = this.at === null ? last + (STEPS[event.key] > 0 ? 0 : 1) : this.at;
    const at = Math.max(0, Math.min(last, from + STEPS[event.key]));
    this.uplot.setCursor({ left: this.uplot.valToPos(this.ends[at], "x"), top: 10 });
    this.point(at);
    const parts = this.lines.map((line) => line.name + " " + (scaled(line.values[at], this.unit) || "no value"));
    this.spoken.textContent = utc(this.ends[at]) + ": " + parts.join(", ");
  }

  resize(width) {
    if (!width || width === this.width) return;
    this.width = width;
    if (this.uplot) this.uplot.setSize({ width, height: HEIGHT });
    else this.plot();
  }
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

function mark(color, at) {
  const made = drawing("svg", { width: 28, height: 8, "aria-hidden": "true" });
  made.append(drawing("line", {
    x1: 0, x2: 28, y1: 4, y2: 4, stroke: color, "stroke-width": 3, "stroke-dasharray": DASHES[at % DASHES.length].join(" "),
  }));
  return made;
}
