// Tables of the History page: verdicts, blockers, queues, forecasts, single blocks, advice, the checks of the tables.

import { h } from "../parts/dom.js";
import { bytes, count, duration, moment, percent, rate, short } from "../parts/format.js";
import { words } from "../parts/marks.js";
import { plainTable } from "../parts/table.js";
import { causeBadge, foretold } from "./words.js";

const number = (title, wide = false) => ({ title, number: true, wide });
const VERDICTS = [
  "Who",
  "Mostly by",
  { title: "Bottleneck", wide: true },
  number("Held back"),
  { title: "Causes", wide: true },
];
const STAGES = ["Stage", "Kind", number("Blocked"), number("Blocks")];
const BLOCKERS = [
  "Bottleneck",
  "Cause",
  number("Time it cost"),
  number("Held somebody back", true),
  number("Connections", true),
];
const QUEUES = [
  "Queue",
  number("Messages"),
  number("At most", true),
  number("Limit"),
  number("Saturated", true),
  number("In", true),
  number("Out", true),
  number("Consumers", true),
];
const LONGEST = [
  { title: "Began", wide: true },
  "Stage",
  "Waited for",
  { title: "Bottleneck", wide: true },
  number("Took"),
];
const CHECKS = [
  "Table",
  "What must be true",
  number("Rows", true),
  number("Failures"),
  { title: "Example", wide: true },
];
const SETTINGS = ["Settings", number("Messages per second"), number("p99"), number("Memory", true), "Why"];
const MEASURED = [
  "When",
  number("Messages per second"),
  number("To a confirm"),
  number("In the broker", true),
  number("Held", true),
  number("Blocked", true),
  number("Memory", true),
];
const TIMES = { before: "before", after: "after", again: "with the old values again" };

export function verdictTable({ verdicts }) {
  const rows = verdicts.map((one) => [
    one.name,
    causeBadge(one.cause),
    one.bottleneck,
    duration(one.held_s),
    Object.entries(one.by_cause_s).map(([cause, seconds]) => `${cause} ${duration(seconds)}`).join(", "),
  ]);
  return plainTable("Verdicts", VERDICTS, rows, "Nobody was held back.");
}

export function stageTable({ stages }) {
  const rows = stages.map((one) => [one.label, one.kind, duration(one.blocked_s), count(one.blocks)]);
  return plainTable("Blocked stages", STAGES, rows, "No stage was blocked.");
}

export function blockerTable({ blockers }) {
  const rows = blockers.map((one) => [
    one.bottleneck || "unknown",
    causeBadge(one.cause),
    duration(one.blocked_s),
    duration(one.present_s),
    count(one.connections),
  ]);
  return plainTable("Top blockers", BLOCKERS, rows, "Nothing held anybody back.");
}

export function queueTable({ depth }) {
  const rows = depth.map((one) => [
    one.stage,
    count(one.messages_last),
    count(one.messages_max),
    one.limit ? `${count(one.limit)} (${percent(one.limit_share)})` : "–",
    percent(one.saturated_share),
    rate(one.received_rate),
    rate(one.sent_rate),
    count(one.consumers),
  ]);
  return plainTable("Queues and their limits", QUEUES, rows, "No queue did anything.");
}

export function forecastTable({ forecasts }) {
  const rows = forecasts.map((one) => [h("span", {}, words(foretold(one))), percent(one.r2)]);
  return plainTable("Forecasts", ["At this trend", number("Fit")], rows, "Nothing has a limit.");
}

export function openTable({ open }) {
  const rows = open.map((one) => [one.stage, one.cause, moment(one.began_ms)]);
  return plainTable("Blocked now", ["Stage", "Waits for", "Since"], rows, "Nothing.");
}

export function longestTable({ longest }) {
  const rows = longest.map((one) => [
    moment(one.began_ms),
    one.stage,
    one.cause,
    one.root,
    duration(one.longest_s),
  ]);
  return plainTable("Longest blocks", LONGEST, rows, "No block is over yet.");
}

export function checkTable({ quality }) {
  const rows = quality.map((one) => [
    one.table,
    one.rule,
    count(one.rows),
    count(one.failures),
    one.example ? h("code", {}, one.example) : "",
  ]);
  return plainTable("Checks of the tables", CHECKS, rows, "Nothing was checked yet.");
}

/** As the advisor wrote it; what it left out is left out. */
export function advice({ advice: found }) {
  if (!found) {
    const how = h("code", {}, "penstock pipeline advise");
    return h("p", { class: "muted" }, "None yet: ", how, " looks for better settings.");
  }
  const options = Array.isArray(found.options) ? found.options : [];
  const all = found.current ? [{ ...found.current, why: "as it is" }, ...options] : options;
  const others = [found.cures, found.notes].flatMap((list) => (Array.isArray(list) ? list : []));
  return [
    found.sentence ? h("p", {}, words(found.sentence)) : null,
    plainTable("Settings", SETTINGS, all.map(option), "None is better."),
    others.length ? h("ul", {}, others.map((text) => h("li", {}, words(text)))) : null,
    ...measured(found),
  ];
}

function option(one) {
  const why = [one.change, one.why].filter(Boolean).join(" ");
  const figures = [count(one.throughput), ms(one.p99_ms), bytes(one.memory_bytes)];
  return [named(one.settings), ...figures, h("span", {}, words(why))];
}

/** What --apply set, what came of it, and the figures of that. */
function measured({ measured: found, applied }) {
  if (!found) return [];
  const rows = Object.entries(TIMES).filter(([when]) => found[when]).map(([when, text]) => {
    const one = found[when];
    // A time of 0: there were no confirms, or no deliveries.
    const times = [ms(one.confirm_ms || null), ms(one.stay_ms || null)];
    return [text, count(one.throughput), ...times, count(one.held), percent(one.blocked), bytes(one.memory_bytes)];
  });
  return [
    applied ? h("p", {}, "Set: ", named(applied.settings)) : null,
    applied?.sentence ? h("p", {}, words(applied.sentence)) : null,
    plainTable("Measured", MEASURED, rows, "Nothing."),
  ];
}

const named = (settings) =>
  Object.entries(settings ?? {}).map(([name, value]) => [h("code", {}, `${name}=${value}`), " "]);
const ms = (value) => (typeof value === "number" ? `${short(value)} ms` : "–");
