// Elements and texts. Texts from the wire are inserted with textContent only.
"use strict";

export const byId = (id) => document.getElementById(id);

export function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

export function drawing(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

// A value of a table, with all its digits. Keys are numbers that identify, such as ports.
export function shown(value, kind) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number" || kind === "key") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(6)).toLocaleString("en");
}

const SCALES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const UNSCALED = ["s", "ms", "%"];

// A value with three digits and its unit, for charts: 1,234,567 B is 1.23 MB.
export function scaled(value, unit) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  const [factor, prefix] = (!UNSCALED.includes(unit) && SCALES.find(([least]) => size >= least * 0.9995)) || [1, ""];
  const digits = Number((value / factor).toPrecision(size / factor >= 1000 ? 6 : 3)).toLocaleString("en");
  const end = prefix + (unit || "");
  return end ? digits + "\u00a0" + end : digits;
}

export function utc(seconds) {
  return seconds === null || seconds === undefined ? "" : new Date(seconds * 1000).toISOString().replace(".000Z", "Z");
}

// A time for a sentence.
export function moment(seconds) {
  return utc(seconds).replace("T", " ").replace("Z", "");
}

// Two times for a caption: the date is not repeated.
export function between(start, end) {
  const [first, last] = [moment(start), moment(end)];
  return first + " to " + (first.slice(0, 10) === last.slice(0, 10) ? last.slice(11) : last);
}

export function counted(count, word, plural) {
  return shown(count) + " " + (count === 1 ? word : plural || word + "s");
}

// A length of time in words: 75 is "1 min 15 s".
export function lasting(seconds) {
  if (seconds < 60) return Number(seconds.toPrecision(2)) + " s";
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes + " min " + Math.floor(seconds % 60) + " s";
  return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}

export async function get(path, parameters) {
  const response = await fetch(parameters ? path + "?" + new URLSearchParams(parameters) : path);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

export function report(error) {
  byId("status").textContent = "error: " + error.message;
}
