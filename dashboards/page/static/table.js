// A table whose rows exist only while they are visible, so that 10,000 rows scroll smoothly.
"use strict";

import { element, report, shown } from "./text.js";

const ROW = 28; // height of a row in px, as in page.css
const SHOWN = 40; // rows that exist at the same time
const PAGE = 200; // rows that are loaded at once

// `answer` has `columns`, `kinds` and `rows`. It may have `first`, the number of its first row, and `stored`, the number
// of all rows: then `load(first, count)` returns the others.
export class LongTable {
  constructor(label) {
    this.region = element("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": label });
    this.table = element("table");
    this.caption = element("caption");
    this.head = element("thead");
    this.body = element("tbody");
    this.table.append(this.caption, this.head, this.body);
    this.region.append(this.table);
    this.rows = [];
    this.count = 0;
    this.top = 0; // reading scrollTop would compute the layout of the page each time
    this.first = -1;
    this.load = null;
    this.loading = false;
    this.version = 0;
    this.region.addEventListener("scroll", () => {
      this.top = this.region.scrollTop;
      this.scrolled();
    }, { passive: true });
  }

  // Show an answer. If the reader has scrolled to rows that it does not contain, they are loaded before: so the table
  // does not become shorter for a moment, and keeps its position.
  async show(answer, caption, load) {
    const version = (this.version += 1);
    const rows = answer.rows.slice();
    const count = answer.stored === undefined ? rows.length : answer.stored;
    const first = this.visible(count);
    if (load && this.missing(rows, count, first) >= 0) {
      const at = Math.max(0, first - PAGE / 4);
      const page = await load(at, PAGE);
      if (version !== this.version) return;
      page.rows.forEach((row, number) => { rows[at + number] = row; });
    }
    this.rows = rows;
    this.count = count;
    this.load = load || null;
    this.kinds = answer.kinds;
    this.caption.textContent = caption;
    this.table.setAttribute("aria-rowcount", count + 1);
    const names = JSON.stringify(answer.columns);
    if (names !== this.names) {
      this.names = names;
      this.width = answer.columns.length;
      const row = element("tr", null, { "aria-rowindex": 1 });
      answer.columns.forEach((name, at) => {
        row.append(element("th", name, { scope: "col", class: answer.kinds[at] }));
      });
      this.head.replaceChildren(row);
    }
    this.draw(true);
  }

  visible(count) {
    const last = Math.max(0, count - SHOWN);
    return Math.min(last, Math.max(0, Math.floor(this.top / ROW) - 10));
  }

  missing(rows, count, first) {
    for (let at = first; at < Math.min(count, first + SHOWN); at += 1) if (rows[at] === undefined) return at;
    return -1;
  }

  scrolled() {
    this.draw(false);
    if (this.load && !this.loading && this.missing(this.rows, this.count, this.first) >= 0) this.fetch().catch(report);
  }

  async fetch() {
    const { version, load } = this;
    this.loading = true;
    try {
      const at = this.missing(this.rows, this.count, this.first);
      const page = await load(Math.max(0, at - PAGE / 4), PAGE);
      if (version !== this.version) return;
      page.rows.forEach((row, number) => { this.rows[page.first + number] = row; });
      this.draw(true);
    } finally {
      this.loading = false;
    }
    if (version === this.version) this.scrolled(); // the reader may have scrolled further meanwhile
  }

  draw(changed) {
    const first = this.visible(this.count);
    if (!changed && first === this.first) return;
    this.first = first;
    const made = [];
    if (first > 0) made.push(this.space(first));
    for (let at = first; at < Math.min(this.count, first + SHOWN); at += 1) {
      const row = element("tr", null, { "aria-rowindex": at + 2 });
      for (let column = 0; column < this.width; column += 1) {
        const kind = this.kinds[column];
        row.append(element("td", this.rows[at] ? shown(this.rows[at][column], kind) : "…", { class: kind }));
      }
      made.push(row);
    }
    if (this.count > first + SHOWN) made.push(this.space(this.count - first - SHOWN));
    this.body.replaceChildren(...made);
  }

  // A table in an element that is closed at first, with a title. `answer()` is called while the table is open.
  static closed(title, label) {
    const table = new LongTable(label);
    const details = element("details");
    details.append(element("summary", title), table.region);
    table.later = (answer, caption) => {
      const show = () => { if (details.open) table.show(answer(), caption).catch(report); };
      details.ontoggle = show;
      show();
    };
    return { details, table };
  }

  space(rows) {
    const row = element("tr", null, { class: "space", "aria-hidden": "true" });
    const cell = element("td", null, { colspan: Math.max(1, this.width) });
    cell.style.height = rows * ROW + "px";
    row.append(cell);
    return row;
  }
}
