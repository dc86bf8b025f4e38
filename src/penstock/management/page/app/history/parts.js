// Parts: the sections of the History page, each from its part of the digest's contents: charts and tables. A part is
// { elements, show(digest) }: its elements stay while what is in them changes, so that focus, scrolling and what is
// unfolded stay too. What is folded up is not drawn.

import { chart } from "../parts/chart.js";
import { h, put, renew, renewDeep } from "../parts/dom.js";
import { bytes, count, percent, short } from "../parts/format.js";
import { words } from "../parts/marks.js";
import { ms, settings, tableOf } from "./cells.js";
import { heat } from "./heat.js";
import { strips } from "./strips.js";
import { trendChart } from "./trend.js";
import { causeClass, made } from "./words.js";

const FORMATS = { ms, bytes: Object.assign((value) => bytes(value), { binary: true }), count: short };
const MAKERS = {
  verdicts,
  timeline,
  heat: heatMap,
  depth,
  syncs: gauges,
  resources: gauges,
  forecasts,
  advice,
  quality,
};

/** The section of a part; one that only a newer pipeline knows has its tables all the same. */
export function section(part) {
  const { elements, show } = (MAKERS[part.id] ?? plain)(part);
  const about = part.about ? h("p", { class: "muted" }, part.about) : null;
  const named = { class: "panel", "aria-label": part.title, "data-part": part.id };
  return { element: h("section", named, h("h2", {}, part.title), about, elements), show };
}

function table(listing) {
  const body = h("div", { class: "history-part" });
  let newest = null;
  const draw = () => newest && (!fold || fold.open) && renewDeep(body, tableOf(listing, newest));
  const fold = listing.folded ? h("details", { ontoggle: draw }, h("summary", {}, "As a table"), body) : null;
  const show = (digest) => {
    newest = digest;
    draw();
  };
  return { element: fold ?? body, show };
}

function plain(part) {
  const tables = (part.tables ?? []).map(table);
  return { elements: tables.map((one) => one.element), show: (digest) => tables.forEach((one) => one.show(digest)) };
}

/** Something above the tables, and what `show` does with it. */
function above(part, elements, show, ...below) {
  const tables = plain(part);
  return {
    elements: [elements, tables.elements, below],
    show: (digest) => {
      show(digest);
      tables.show(digest);
    },
  };
}

function verdicts(part) {
  const held = strips(part.title);
  const legend = h("ul", { class: "legend" });
  const left = h("div");
  const show = (digest) => {
    const causes = [...new Set(digest.verdicts.flatMap((one) => Object.keys(one.by_cause_s)))].sort();
    renew(legend, causes.map((cause) => h("li", {}, h("i", { class: `block ${causeClass(cause)}` }), cause)));
    held.show(digest, digest.verdicts.map(verdictRow));
    held.element.hidden = !digest.verdicts.length;
    renew(left, more(digest, "verdicts"));
  };
  return above(part, [legend, held.element], show, left);
}

function timeline(part) {
  const blocks = strips(part.title);
  const left = h("div");
  const nothing = h("p", {}, part.nothing);
  const tables = plain(part);
  const show = (digest) => {
    const none = !digest.stages.length;
    blocks.show(digest, digest.stages.map(stageRow));
    blocks.element.hidden = none;
    nothing.hidden = !none;
    for (const one of tables.elements) one.hidden = none;
    renew(left, more(digest, "stages"));
    tables.show(digest);
  };
  return { elements: [blocks.element, nothing, left, tables.elements], show };
}

function heatMap(part) {
  const body = h("div", { class: "history-part" });
  return { elements: body, show: (digest) => renewDeep(body, heat(digest.heat, part)) };
}

function depth(part) {
  const left = h("div");
  const charts = several((one) => {
    const lines = [["messages", "Messages"], ...(one.limit === null ? [] : [["limit", "Limit", true]])];
    const series = lines.map(([name, label, limit]) => ({ name, label, limit }));
    return chart({ title: one.stage, format: short, heading: "h3", series });
  });
  const show = (digest) => {
    const rows = digest.depth.slice(0, part.drawn);
    charts.show(rows, (one) => `${one.stage} ${one.limit !== null}`, (one) => ({
      at_ms: moments(digest),
      series: { messages: one.messages, limit: Array(digest.steps).fill(one.limit) },
    }));
    renew(left, more(digest, "depth"));
  };
  return above(part, charts.element, show, left);
}

function gauges(part) {
  const charts = part.charts.map(({ title, kind, note, series }) => {
    const lines = series.map(({ field, label, limit }) => ({ name: field, label, limit }));
    return chart({ title, note, format: FORMATS[kind] ?? short, heading: "h3", series: lines });
  });
  const drawn = h("div", { class: charts.length > 1 ? "columns" : null }, charts.map((one) => one.element));
  const nothing = h("p", {}, part.nothing);
  const tables = plain(part);
  const show = (digest) => {
    const series = digest[part.id];
    const there = part.charts.map((one) => series[one.series[0].field].some((value) => value !== null));
    charts.forEach((one, i) => {
      one.element.hidden = !there[i];
      if (there[i]) one.show({ at_ms: moments(digest), series });
    });
    const none = !there.includes(true);
    nothing.hidden = !none;
    for (const one of tables.elements) one.hidden = none;
    tables.show(digest);
  };
  return { elements: [drawn, nothing, tables.elements], show };
}

function forecasts(part) {
  const charts = several((one) => trendChart(one.title));
  const show = (digest) => {
    const rows = digest.forecasts.slice(0, part.drawn);
    charts.show(rows, (one) => one.title, (one) => ({ digest, one }));
  };
  return above(part, charts.element, show);
}

/** As the advisor wrote it; what it left out is left out. What was tried and taken back is not said to be set. */
function advice(part) {
  const [listed, measured] = part.tables;
  const body = h("div", { class: "history-part" });
  const none = () =>
    h("p", { class: "muted" }, "None yet: ", h("code", {}, "penstock pipeline advise"), " looks for better settings.");
  const all = (digest) => {
    const { unreadable, sentence, cures, notes, applied, measured: figures } = digest.advice;
    if (unreadable) return [h("p", {}, `There is advice, but ${unreadable}`)];
    const others = [cures, notes].flatMap((list) => (Array.isArray(list) ? list : []));
    return [
      made(digest) ? h("p", { class: "muted" }, words(made(digest))) : null,
      sentence ? h("p", {}, words(sentence)) : null,
      tableOf(listed, digest),
      others.length ? h("ul", {}, others.map((text) => h("li", {}, words(text)))) : null,
      applied ? h("p", {}, applied.rolled_back ? "Tried: " : "Set: ", settings(applied.settings)) : null,
      applied?.sentence ? h("p", {}, words(applied.sentence)) : null,
      figures ? tableOf(measured, digest) : null,
    ];
  };
  return { elements: body, show: (digest) => renewDeep(body, digest.advice ? all(digest) : none()) };
}

/** What fails is unfolded, once: who folds it up has read it. */
function quality(part) {
  const said = h("p");
  const tables = plain(part);
  let told = false;
  const show = (digest) => {
    const all = digest.quality.length;
    const failed = digest.quality.filter((one) => one.failures).length;
    const words = failed ? `${failed} of ${all} checks failed for some rows.` : `All ${all} checks hold.`;
    renew(said, all ? words : part.nothing);
    for (const one of tables.elements) {
      one.hidden = !all;
      if (failed && !told) one.open = true;
    }
    told = told || failed > 0;
    tables.show(digest);
  };
  return { elements: [said, tables.elements], show };
}

/** Charts of rows that come and go, beside each other; one that was there already stays. */
function several(make) {
  const element = h("div", { class: "columns" });
  const drawn = new Map();
  function show(rows, nameOf, valueOf) {
    const shown = rows.map((one) => {
      const name = nameOf(one);
      if (!drawn.has(name)) drawn.set(name, make(one));
      return drawn.get(name);
    });
    const there = [...element.children];
    const same = shown.length === there.length && shown.every((one, i) => there[i] === one.element);
    if (!same) put(element, shown.map((one) => one.element));
    element.hidden = !shown.length;
    for (const [name, one] of drawn) if (!shown.includes(one)) drawn.delete(name);
    shown.forEach((one, i) => one.show(valueOf(rows[i])));
  }
  return { element, show };
}

function moments({ since_ms: since, step_s: step, steps }) {
  return Array.from({ length: steps }, (_, i) => since + (i + 1) * step * 1000);
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
