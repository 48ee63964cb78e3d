// The table of the links: their state in words, and what each has counted.
"use strict";

import { counted, element, lasting, moment, scaled, shown, utc } from "./text.js";

const SHORT = 1; // seconds that a link may be behind the others without a word

export const LINK_COLUMNS = ["records", "packets", "bytes", "late", "dropped", "lulls"];

// The state of a link in words, part by part; `alarming` if it needs attention.
export function stateOf(link, now) {
  const parts = [];
  let alarming = false;
  if (link.state === "waiting") parts.push("no data yet");
  if (link.state === "active") parts.push("active");
  if (link.state === "ended") parts.push("ended");
  if (link.state === "silent") {
    parts.push("silent since " + moment(Math.round(link.since)) + " (" + lasting(Math.max(0, now - link.since)) + ")");
  }
  const holds = link.holds.filter((each) => each.seconds >= SHORT);
  if (holds.length) {
    alarming = link.state === "silent";
    const most = Math.max(...holds.map((each) => each.seconds));
    const queries = holds.length > 3 ? counted(holds.length, "query", "queries") : holds.map((each) => each.query).join(", ");
    parts.push("holds back " + queries + " by " + lasting(most));
  }
  if (link.partials_lost) parts.push(counted(link.partials_lost, "partial") + " lost");
  if (link.damaged) parts.push(counted(link.damaged, "damaged file"));
  return { parts, alarming: alarming || link.partials_lost > 0 || link.damaged > 0 };
}

export function showLinks(body, links, now) {
  body.replaceChildren(...links.map((link) => {
    const row = element("tr");
    const { parts, alarming } = stateOf(link, now);
    row.append(element("th", link.name, { scope: "row" }));
    const state = element("td", null, { class: alarming ? "state alarming" : "state" });
    parts.forEach((part, at) => state.append(element("span", part + (at + 1 < parts.length ? "; " : ""))));
    row.append(state);
    for (const name of LINK_COLUMNS) {
      const attributes = { class: "number" + (["late", "dropped"].includes(name) && link[name] ? " alarming" : "") };
      const number = name === "bytes" ? element("td", scaled(link[name], "B"), { ...attributes, title: shown(link[name]) }) :
        element("td", shown(link[name]), attributes);
      row.append(number);
    }
    row.append(element("td", utc(link.watermark)));
    row.append(element("td", link.lag === null ? "" : shown(Math.round(link.lag * 10) / 10), { class: "number" }));
    const lateness = link.lateness ? shown(Math.ceil(link.lateness * 1000) / 1000) : "";
    row.append(element("td", lateness, { class: "number" }));
    return row;
  }));
}
