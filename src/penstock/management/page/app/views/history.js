// History: what the flow pipeline has found in the last hours. Who was held back by what and when, who blocked whom,
// how near queues, memory and disk came to their limits, and when they will be there. As the report file has it.

import { get, query } from "../parts/api.js";
import { chart } from "../parts/chart.js";
import { h, put, renew, renewDeep } from "../parts/dom.js";
import { bytes, count, duration, moment, percent, short } from "../parts/format.js";
import { tile, words } from "../parts/marks.js";
import { remember } from "../parts/router.js";
import { heat } from "../history/heat.js";
import { strips } from "../history/strips.js";
import * as tables from "../history/tables.js";
import { cards, causeClass } from "../history/words.js";

const RANGES = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["24h", "24 h"],
];
const RANGE = "1h";
const SECONDS = 5; // how often the pipeline writes
const OLD_S = 180; // behind by more than that, though an idle broker is heard of every minute: somebody should look
const QUEUES_DRAWN = 4;
const ms = (value) => (value < 1000 ? `${short(value)} ms` : `${short(value / 1000)} s`);
const size = Object.assign((value) => bytes(value), { binary: true });
const SYNCS = [["p50_ms", "p50"], ["p95_ms", "p95"], ["p99_ms", "p99"]];

export function history(place) {
  const given = place.query.get("range");
  let range = RANGES.some(([name]) => name === given) ? given : RANGE;
  const buttons = RANGES.map(([name, label]) =>
    h("button", { type: "button", "aria-pressed": String(name === range), onclick: () => choose(name) }, label),
  );
  const choice = h("div", { class: "segments", role: "group", "aria-label": "How far back" }, buttons);
  const nothing = h("div");
  const view = parts();
  view.element.hidden = true;
  place.show("History", choice, nothing, view.element);

  function choose(name) {
    range = name;
    remember({ range: name === RANGE ? "" : name });
    RANGES.forEach(([one], i) => buttons[i].setAttribute("aria-pressed", String(one === name)));
    timer.now();
  }

  const timer = place.every(SECONDS, async (signal) => {
    const asked = range;
    const { digest, reason } = await get("/api/flow/tables" + query({ range: asked }), signal);
    if (asked !== range) return; // another one was chosen meanwhile
    view.element.hidden = !digest;
    renew(nothing, digest ? [] : howToGetIt(reason));
    if (digest) view.show(digest);
  });
}

function howToGetIt(reason) {
  return h(
    "section",
    { class: "panel", id: "no-history" },
    h("h2", {}, "There is no history yet"),
    h("p", {}, words(`${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`)),
    h("p", {}, "The broker, this page and the pipeline in one command:"),
    h("pre", {}, "penstock up"),
    h("p", {}, "Or beside a broker that has a data directory, where Spark is installed:"),
    h("pre", {}, "penstock pipeline flow --tables DIR\npenstock serve --management … --set management.tables=DIR"),
  );
}

/** The elements stay while their content changes, so that focus, scrolling and what is unfolded stay too. */
function parts() {
  const banner = h("div", { role: "status" });
  const tiles = h("dl", { class: "tiles" });
  const list = h("ol", { class: "verdicts" });
  const held = strips("Who was held back");
  const legend = h("ul", { class: "legend" });
  const blocks = strips("Blocks over time");
  const queues = h("div", { class: "columns" });
  const gauges = [
    chart({ title: "Time per sync", format: ms, series: series(SYNCS) }),
    chart({
      title: "Memory",
      note: "publishers wait above the mark",
      format: size,
      series: series([["memory_used_bytes", "Used"], ["memory_limit_bytes", "Watermark", true]]),
    }),
    chart({
      title: "Disk",
      note: "publishers wait below the mark",
      format: size,
      series: series([["disk_free_bytes", "Free"], ["disk_limit_bytes", "Low mark", true]]),
    }),
    chart({
      title: "Connections, channels and queues",
      format: short,
      series: series([["connections", "Connections"], ["channels", "Channels"], ["queues", "Queues"]]),
    }),
  ];
  const bodies = {};
  const drawn = new Map(); // charts of queues, by name
  const strong = "The stronger the colour, the larger the part of the time.";
  const element = h(
    "div",
    {},
    banner,
    tiles,
    h("section", { "aria-label": "What held whom back" }, list),
    panel("Who was held back", legend, held.element, body("verdicts")),
    panel("Blocks over time", h("p", { class: "muted" }, strong), blocks.element, folded("As a table", body("stages"))),
    panel("Who blocked whom", body("heat")),
    panel("Top blockers", body("blockers")),
    panel("Queues and their limits", body("queues")),
    queues,
    h("div", { class: "columns" }, gauges.map((one) => one.element)),
    panel("Forecasts", body("forecasts")),
    panel("Advice", body("advice")),
    panel("Blocked now", body("open")),
    panel("Longest blocks", body("longest")),
    panel("Checks of the tables", body("sum"), folded("All checks", body("checks"))),
  );

  function body(name) {
    bodies[name] = h("div", { class: "history-part" });
    return bodies[name];
  }

  function show(digest) {
    renew(banner, bannerOf(digest));
    renew(tiles, numbers(digest));
    renewDeep(list, cards(digest));
    renew(legend, causes(digest).map((cause) => h("li", {}, h("i", { class: `block ${causeClass(cause)}` }), cause)));
    held.show(digest, digest.verdicts.map(verdictRow));
    blocks.show(digest, digest.stages.map(stageRow));
    held.element.hidden = !digest.verdicts.length;
    blocks.element.hidden = !digest.stages.length;
    renewDeep(bodies.verdicts, tables.verdictTable(digest), more(digest, "verdicts"));
    renewDeep(bodies.stages, tables.stageTable(digest), more(digest, "stages"));
    renewDeep(bodies.heat, heat(digest.heat));
    renewDeep(bodies.blockers, tables.blockerTable(digest));
    renewDeep(bodies.queues, tables.queueTable(digest), more(digest, "depth"));
    renewDeep(bodies.forecasts, tables.forecastTable(digest));
    renewDeep(bodies.advice, tables.advice(digest));
    renewDeep(bodies.open, tables.openTable(digest));
    renewDeep(bodies.longest, tables.longestTable(digest));
    renewDeep(bodies.sum, h("p", {}, checked(digest)));
    renewDeep(bodies.checks, tables.checkTable(digest));
    const at_ms = Array.from({ length: digest.steps }, (_, i) => digest.since_ms + (i + 1) * digest.step_s * 1000);
    for (const one of gauges) one.show({ at_ms, series: { ...digest.syncs, ...digest.resources } });
    showQueues(digest, at_ms);
  }

  /** A chart for each of the first queues; one that was there already stays. */
  function showQueues({ depth, steps }, at_ms) {
    const shown = depth.slice(0, QUEUES_DRAWN).map((one) => {
      const name = `${one.stage} ${one.limit !== null}`;
      if (!drawn.has(name)) drawn.set(name, queueChart(one));
      const limit = Array(steps).fill(one.limit);
      drawn.get(name).show({ at_ms, series: { messages: one.messages, limit } });
      return drawn.get(name).element;
    });
    const same = shown.length === queues.children.length && shown.every((one, i) => queues.children[i] === one);
    if (same) return;
    put(queues, shown);
    for (const [name, one] of drawn) if (!shown.includes(one.element)) drawn.delete(name);
  }

  return { element, show };
}

function queueChart(one) {
  const lines = [["messages", "Messages"], ...(one.limit === null ? [] : [["limit", "Limit", true]])];
  return chart({ title: one.stage, format: short, series: series(lines) });
}

const counted = (name, value, what) => tile(name, count(value), value === 1 ? what : `${what}s`);
const series = (lines) => lines.map(([name, label, limit]) => ({ name, label, limit }));
const panel = (title, ...content) => h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), content);
const folded = (label, content) => h("details", {}, h("summary", {}, label), content);

function bannerOf(digest) {
  const behind = (Date.now() - digest.until_ms) / 1000;
  const [first, ...others] = digest.summary;
  const goesOn = others.some((one) => one.now);
  const kind = goesOn ? "warn" : "good";
  const late = behind > OLD_S + digest.step_s
    ? h("p", {}, `The tables end ${duration(behind)} ago, at ${moment(digest.until_ms)}: does the pipeline run?`)
    : null;
  return [
    h("div", { class: `banner ${kind}` }, h("p", {}, words(first.text)), h("a", { href: "#/flow" }, "Now: Flow")),
    late ? h("div", { class: "banner warn", id: "behind" }, late) : null,
  ];
}

function numbers(digest) {
  const [longest] = digest.longest;
  const syncs = digest.syncs.p99_ms.filter((value) => value !== null);
  const [near] = digest.depth.filter((one) => one.limit_share).sort((a, b) => b.limit_share - a.limit_share);
  const failures = digest.quality.reduce((sum, one) => sum + one.failures, 0);
  return [
    counted("Held back", digest.verdicts.length + digest.left_out.verdicts, "publisher"),
    counted("Blocked now", digest.open.length, "stage"),
    tile("Longest block", longest ? duration(longest.longest_s) : "none", longest?.stage),
    tile("Slowest syncs", syncs.length ? ms(Math.max(...syncs)) : "none", "p99 of the worst window"),
    tile("Nearest to its limit", near ? percent(near.limit_share) : "none", near?.stage),
    counted("Fail a check", failures, "row"),
  ];
}

function causes(digest) {
  return [...new Set(digest.verdicts.flatMap((one) => Object.keys(one.by_cause_s)))].sort();
}

function verdictRow(one) {
  const said = (i) => (one.share[i] ? `${one.causes[i]}, ${percent(one.share[i])}` : "not held back");
  return { label: one.name, share: one.share, kind: one.causes.map(causeClass), said };
}

function stageRow(one) {
  const said = (i) => (one.share[i] ? `blocked ${percent(one.share[i])}` : "not blocked");
  return { label: one.label, share: one.share, kind: null, said };
}

function more(digest, name) {
  const left = digest.left_out[name];
  return left ? h("p", { class: "muted" }, `${count(left)} more are in the tables.`) : null;
}

function checked({ quality }) {
  const failed = quality.filter((one) => one.failures).length;
  if (!quality.length) return "Nothing was checked yet.";
  return failed ? `${failed} of ${quality.length} checks fail for some rows.` : `All ${quality.length} checks hold.`;
}
