// History: what the flow pipeline has found in the last hours. Who was held back by what and when, who blocked whom,
// how near queues, memory and disk came to their limits, and when they will be there. As the report file has it.

import { get, query } from "../parts/api.js";
import { h, renew, renewDeep, put } from "../parts/dom.js";
import { count, duration, moment, percent } from "../parts/format.js";
import { tile, words } from "../parts/marks.js";
import { remember } from "../parts/router.js";
import { ms } from "../history/cells.js";
import { section } from "../history/parts.js";
import { cards } from "../history/words.js";

const RANGES = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["24h", "24 h"],
];
const RANGE = "1h";
const SECONDS = 5; // how often the pipeline writes
const OLD_S = 180; // behind by more than that, though an idle broker is heard of every minute: somebody should look
const OTHER = "what the flow pipeline has written is of another version: start it again with this one";

export function history(place) {
  const given = place.query.get("range");
  let range = RANGES.some(([name]) => name === given) ? given : RANGE;
  const buttons = RANGES.map(([name, label]) =>
    h("button", { type: "button", "aria-pressed": String(name === range), onclick: () => choose(name) }, label),
  );
  const choice = h("div", { class: "segments", role: "group", "aria-label": "How far back" }, buttons);
  const nothing = h("div");
  const view = contents();
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
    const { digest: found, reason } = await get("/api/flow/tables" + query({ range: asked }), signal);
    if (asked !== range) return; // another one was chosen meanwhile
    const digest = found?.parts ? found : null;
    view.element.hidden = !digest;
    renew(nothing, digest ? [] : howToGetIt(found ? OTHER : reason));
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

/** The beginning, then the parts that the digest says there are: the same as in the report file. */
function contents() {
  const banner = h("div", { role: "status" });
  const tiles = h("dl", { class: "tiles" });
  const list = h("ol", { class: "verdicts" });
  const rest = h("div");
  const element = h("div", {}, banner, tiles, h("section", { "aria-label": "What held whom back" }, list), rest);
  let known = "";
  let sections = [];

  function show(digest) {
    renew(banner, bannerOf(digest));
    renew(tiles, numbers(digest));
    renewDeep(list, cards(digest));
    const wanted = JSON.stringify(digest.parts);
    if (wanted !== known) {
      known = wanted;
      sections = digest.parts.map(section);
      put(rest, sections.map((one) => one.element));
    }
    for (const one of sections) one.show(digest);
  }

  return { element, show };
}

const counted = (name, value, what) => tile(name, count(value), value === 1 ? what : `${what}s`);

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
    counted("Still blocked", digest.open.length, "stage"),
    tile("Longest block", longest ? duration(longest.longest_s) : "none", longest?.stage),
    tile("Slowest syncs", syncs.length ? ms(Math.max(...syncs)) : "none", "p99 of the worst window"),
    tile("Nearest to its limit", near ? percent(near.limit_share) : "none", near?.stage),
    counted("Fail a check", failures, "row"),
  ];
}
