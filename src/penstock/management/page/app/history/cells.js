// Cells: the tables of the digest's contents: their rows, and how each kind of cell looks. As the report file has it
// (spark/report/cells.py); which tables there are, and their columns, the digest says.

import { h } from "../parts/dom.js";
import { bytes, count, duration, moment, percent, rate, short } from "../parts/format.js";
import { words } from "../parts/marks.js";
import { plainTable } from "../parts/table.js";
import { causeBadge, clock, foretold } from "./words.js";

const TIMES = { before: "before", after: "after", again: "with the old values again" };
const MOST = { syncs: "count", resources: "memory_used_bytes" }; // a step that has none of it has no row
const NUMBERS = { count, percent, rate, seconds: duration, ms, bytes };
const KINDS = {
  text: (value) => value ?? "",
  stage: (value) => value || "unknown",
  cause: causeBadge,
  causes: (value) => Object.entries(value).map(([cause, seconds]) => `${cause} ${duration(seconds)}`).join(", "),
  moment,
  clock,
  code: (value) => (value ? h("code", {}, value) : ""),
  sentence: (value) => h("span", {}, words(value)),
  settings,
  foretold: (_, row) => h("span", {}, words(foretold(row))),
  ...NUMBERS,
};

export function ms(value) {
  if (typeof value !== "number") return "–";
  return value < 1000 ? `${short(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

export function settings(value) {
  return Object.entries(value ?? {}).map(([name, one]) => [h("code", {}, `${name}=${one}`), " "]);
}

/** `listing`: { id, caption, columns: [{ title, field, kind, wide }], empty, seen }. */
export function tableOf({ id, caption, columns, empty, seen }, digest) {
  const titles = columns.map(({ title, kind, wide }) => ({ title, wide, number: kind in NUMBERS }));
  const rows = rowsOf(id, digest).map((row) => columns.map(({ field, kind }) => cell(kind, row[field], row)));
  const title = seen ? h("p", { class: "table-title", "aria-hidden": "true" }, caption) : null;
  return [title, plainTable(caption, titles, rows, empty)];
}

/** A kind that a newer pipeline has is text here. */
function cell(kind, value, row) {
  return (KINDS[kind] ?? KINDS.text)(value, row);
}

function rowsOf(id, digest) {
  if (id in MOST) return steps(digest[id], MOST[id], digest);
  if (id === "settings") return options(digest.advice ?? {});
  if (id === "measured") return measured(digest.advice?.measured ?? {});
  return digest[id] ?? [];
}

function steps(series, most, { since_ms: since, step_s: step }) {
  const row = (i) => Object.fromEntries(Object.entries(series).map(([name, values]) => [name, values[i]]));
  return series[most].flatMap((known, i) => (known ? [{ at_ms: since + i * step * 1000, ...row(i) }] : []));
}

/** As it is, then what would be better. */
function options({ current, options: given }) {
  const first = current ? [{ ...current, change: "", why: "as it is" }] : [];
  const all = [...first, ...(Array.isArray(given) ? given : [])];
  return all.map((one) => ({ ...one, why: [one.change, one.why].filter(Boolean).join(" ") }));
}

/** A time of 0: there were no confirms, or no deliveries. */
function measured(found) {
  const there = Object.entries(TIMES).filter(([when]) => found[when]);
  return there.map(([when, text]) => {
    const one = found[when];
    return { ...one, when: text, confirm_ms: one.confirm_ms || null, stay_ms: one.stay_ms || null };
  });
}
