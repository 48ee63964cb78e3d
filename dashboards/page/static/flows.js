// The flow diagram of a query with several columns of groups: from the left to the right, as wide as its value.
"use strict";

import { drawing, element, scaled } from "./text.js";
import { LongTable } from "./table.js";
import { palette } from "./chart.js";

const REST = "all others";
const WIDTH = 10; // of a node, in px
const PITCH = 17; // least distance of the texts of two nodes
const BODY = 190; // height of all nodes together, without gaps
const MARGIN = 8;

export class Flows {
  constructor(name) {
    this.name = name;
    this.figure = element("figure");
    this.caption = element("figcaption");
    this.place = element("div", null, { class: "flows" });
    const { details, table } = LongTable.closed("The diagram as a table", "flows of " + name);
    this.numbers = table;
    this.figure.append(this.caption, this.place, details);
    this.width = 0;
    new ResizeObserver(([entry]) => this.resize(Math.floor(entry.contentRect.width))).observe(this.place);
  }

  show(flows, unit) {
    this.flows = flows;
    this.unit = unit;
    const total = flows.values.reduce((sum, value) => sum + value, flows.other);
    this.caption.textContent = flows.paths.length === 0 ? "no flows in this range" :
      flows.column + " by " + flows.stages.join(", ") + " over the range, " + scaled(total, unit) + " in all";
    this.numbers.later(() => {
      const rows = flows.paths.map((path, at) => [...path, flows.values[at], share(flows.values[at], total)]);
      if (flows.other > 0) rows.push([...flows.stages.map(() => REST), flows.other, share(flows.other, total)]);
      const kinds = [...flows.stages.map(() => "text"), "number", "number"];
      return { columns: [...flows.stages, flows.column, "share"], kinds, rows };
    }, "the largest flows");
    this.draw();
  }

  resize(width) {
    if (!width || width === this.width) return;
    this.width = width;
    this.draw();
  }

  draw() {
    const { width } = this;
    if (!this.flows || !width) return;
    const paths = this.flows.paths.map((path, at) => ({ path, value: this.flows.values[at], rest: false }));
    if (this.flows.other > 0 && paths.length) {
      paths.push({ path: this.flows.stages.map(() => REST), value: this.flows.other, rest: true });
    }
    const stages = this.flows.stages.map((_, stage) => nodes(paths, stage));
    const height = Math.max(...stages.map((list) => BODY + list.length * PITCH)) + 2 * MARGIN;
    const total = paths.reduce((sum, each) => sum + each.value, 0);
    stages.forEach((list) => place(list, total, height));
    const svg = drawing("svg", {
      width, height: paths.length ? height : 0, role: "img",
      "aria-label": "flow diagram of " + this.name + "; the table after it has the same numbers",
    });
    const colors = palette();
    const color = new Map([...stages[0].keys()].map((key) => [stages[0][key].key, colors[key % (colors.length - 1)]]));
    color.set("rest", colors[colors.length - 1]);
    const columns = stages.length;
    const x = (stage) => (stage * (width - WIDTH)) / (columns - 1);
    for (let stage = 0; stage + 1 < columns; stage += 1) {
      for (const ribbon of ribbons(paths, stages, stage)) {
        svg.append(this.ribbon(ribbon, x(stage) + WIDTH, x(stage + 1), color));
      }
    }
    stages.forEach((list, stage) => list.forEach((node) => {
      svg.append(drawing("rect", { x: x(stage), y: node.top, width: WIDTH, height: Math.max(1, node.height), class: "node" }));
      const last = stage === columns - 1;
      const text = drawing("text", {
        x: last ? x(stage) - 6 : x(stage) + WIDTH + 6, y: node.top + node.height / 2, dy: "0.35em",
        "text-anchor": last ? "end" : "start",
      }, node.text);
      text.append(drawing("title", {}, node.text + ": " + scaled(node.value, this.unit)));
      svg.append(text);
    }));
    this.place.replaceChildren(svg);
  }

  ribbon({ from, to, value, height, source, y0, y1 }, left, right, color) {
    const middle = (left + right) / 2;
    const made = drawing("path", {
      d: `M${left},${y0} C${middle},${y0} ${middle},${y1} ${right},${y1}`,
      stroke: color.get(source), "stroke-width": Math.max(1, height), class: "ribbon",
    });
    made.append(drawing("title", {}, from + " → " + to + ": " + scaled(value, this.unit)));
    return made;
  }
}

function share(value, total) {
  return total ? (100 * value / total).toFixed(1) + " %" : "";
}

// The rest is a node of its own, also if a group has its text.
function keyOf(each, stage) {
  return each.rest ? "rest" : "group " + each.path[stage];
}

// The nodes of a column: the largest first, the rest at the end.
function nodes(paths, stage) {
  const found = new Map();
  for (const each of paths) {
    const key = keyOf(each, stage);
    const node = found.get(key) || { key, text: each.path[stage], value: 0, rest: each.rest };
    node.value += each.value;
    found.set(key, node);
  }
  return [...found.values()].sort((one, other) => one.rest - other.rest || other.value - one.value);
}

function place(list, total, height) {
  let top = (height - BODY - (list.length - 1) * PITCH) / 2;
  for (const node of list) {
    node.height = total ? (node.value / total) * BODY : 0;
    node.top = top;
    node.left = node.right = top; // where the next ribbon begins, on either side
    top += node.height + PITCH;
  }
}

// The ribbons between two columns. Paths that differ only in other columns have one ribbon for each first group, so that
// a colour can be followed to the right.
function ribbons(paths, stages, stage) {
  const joined = new Map();
  for (const each of paths) {
    const ends = [keyOf(each, stage), keyOf(each, stage + 1), keyOf(each, 0)];
    const key = JSON.stringify(ends);
    const ribbon = joined.get(key) || {
      from: each.path[stage], to: each.path[stage + 1], ends, source: ends[2], value: 0,
    };
    ribbon.value += each.value;
    joined.set(key, ribbon);
  }
  const order = (list) => new Map(list.map((node, at) => [node.key, at]));
  const [left, right] = [order(stages[stage]), order(stages[stage + 1])];
  const node = (side, key) => stages[stage + side].find((each) => each.key === key);
  const made = [...joined.values()];
  made.sort((one, other) => right.get(one.ends[1]) - right.get(other.ends[1]) || left.get(one.ends[0]) - left.get(other.ends[0]));
  for (const ribbon of made) {
    const from = node(0, ribbon.ends[0]);
    ribbon.height = from.value ? (ribbon.value / from.value) * from.height : 0;
    ribbon.y0 = from.right + ribbon.height / 2;
    from.right += ribbon.height;
  }
  made.sort((one, other) => left.get(one.ends[0]) - left.get(other.ends[0]) || right.get(one.ends[1]) - right.get(other.ends[1]));
  for (const ribbon of made) {
    const to = node(1, ribbon.ends[1]);
    ribbon.y1 = to.left + ribbon.height / 2;
    to.left += ribbon.height;
  }
  return made;
}
