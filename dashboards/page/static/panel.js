// The panel of a query: its chart, its flow diagram, and the rows of its newest window.
"use strict";

import { between, byId, counted, element, get, report, shown } from "./text.js";
import { Chart } from "./chart.js";
import { Flows } from "./flows.js";
import { LongTable } from "./table.js";

const GROUPS = 8; // lines of a chart, in addition to the others
const FLOWS = 20; // flows of a diagram
const BOUNDS = ["window_start", "window_end"]; // columns that the caption of a window contains
const REDRAW = 1000; // least time between two updates of a query, in ms
const BUSY = 20; // and at least this multiple of the time of the last update, so that pages do not slow the pipeline
const FORMATS = ["csv", "parquet", "json", "arrow"];

export class Panel {
  constructor(query) {
    this.query = query;
    this.column = query.rank;
    this.wait = REDRAW;
    this.drawnAt = 0;
    this.timer = null;
    this.provisional = false; // whether the window that is shown may still be corrected
    const id = "query-" + query.name;
    this.section = element("section", null, { class: "panel", "aria-labelledby": id });
    const head = element("div", null, { class: "panel-head" });
    this.counts = element("p", null, { class: "note" });
    head.append(element("h2", query.name, { id }), this.counts);
    this.section.append(head);
    if (query.windowed && query.rank) {
      if (query.values.length > 1) head.append(this.selector());
      this.chart = new Chart(query.name);
      this.section.append(this.chart.figure);
    }
    const rows = element("div", null, { class: "panel-rows" });
    if (this.chart && query.stages.length) {
      this.flows = new Flows(query.name);
      rows.append(this.flows.figure);
    }
    this.table = new LongTable("newest window of " + query.name);
    rows.append(this.table.region);
    this.section.append(rows);
    const details = element("details");
    details.append(element("summary", "Query and export"), element("pre", query.sql), this.downloads());
    this.section.append(details);
  }

  selector() {
    const label = element("label", "Value ");
    const select = element("select");
    for (const value of this.query.values) select.append(element("option", value.name));
    select.value = this.column;
    select.addEventListener("change", () => {
      this.column = select.value;
      this.refresh().catch(report);
    });
    label.append(select);
    return label;
  }

  downloads() {
    const line = element("p", "All stored windows as a file: ");
    FORMATS.forEach((format, at) => {
      if (at) line.append(", ");
      const href = "export?" + new URLSearchParams({ query: this.query.name, format });
      line.append(element("a", format, { href, download: "" }));
    });
    return line;
  }

  get value() {
    return this.query.values.find((value) => value.name === this.column);
  }

  async refresh() {
    this.drawnAt = performance.now();
    const parameters = { query: this.query.name };
    if (this.chart) Object.assign(parameters, { column: this.column, seconds: byId("range").value, groups: GROUPS });
    if (this.flows && this.value.adds) parameters.flows = FLOWS;
    const panel = await get("api/panel", parameters);
    if (panel.newest) await this.showWindow(panel.newest);
    else this.table.caption.textContent = "no window yet";
    const { windows, rows, late } = panel.counts;
    this.counts.textContent = counted(windows, "window") + ", " + counted(rows, "row") + ", " + shown(late) + " late";
    this.counts.classList.toggle("alarming", late > 0);
    if (panel.chart) this.chart.show(panel.chart, this.value);
    if (this.flows) {
      this.flows.figure.hidden = !panel.flows;
      if (panel.flows) this.flows.show(panel.flows, this.value.unit);
    }
    this.wait = Math.max(REDRAW, BUSY * (performance.now() - this.drawnAt));
  }

  showWindow(answer) {
    const columns = answer.columns.map((name, at) => at).filter((at) => !BOUNDS.includes(answer.columns[at]));
    const pick = (list) => columns.map((at) => list[at]);
    const rows = { columns: pick(answer.columns), kinds: pick(answer.kinds), rows: answer.rows.map(pick), stored: answer.stored };
    const part = answer.groups > answer.stored ? ", the first " + shown(answer.stored) : "";
    let when = answer.end === null ? "newest rows" : "window " + between(answer.start, answer.end);
    if (!answer.final) when += ", provisional";
    this.provisional = !answer.final;
    return this.table.show(rows, when + ": " + counted(answer.groups, "row") + part, async (first, count) => {
      const page = await get("api/window", { id: answer.id, first, count });
      return { first: page.first, rows: page.rows.map(pick) };
    });
  }

  // A new window: show its rows at once, if the event has all of them. The rest follows, at most once per REDRAW.
  update(event) {
    if (event.groups <= event.rows.length) this.showWindow({ ...event, stored: event.groups }).catch(report);
    if (this.timer !== null) return;
    const wait = Math.max(0, this.wait - (performance.now() - this.drawnAt));
    this.timer = setTimeout(() => {
      this.timer = null;
      this.refresh().catch(report);
    }, wait);
  }
}
