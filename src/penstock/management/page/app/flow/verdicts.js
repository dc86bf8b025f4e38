// Verdicts: for each connection that is held back one sentence, its chain, since when, and how much of the last minute.

import { h, renewDeep } from "../parts/dom.js";
import { duration, moment, percent } from "../parts/format.js";
import { badge, words } from "../parts/marks.js";
import { plainTable } from "../parts/table.js";

const SHOWN_MAX = 10;
const OTHERS_MAX = 30;
const EARLIER = ["Began", "Took", "Connection", "Cause", { title: "What it was", wide: true }];

export function verdictList(choose) {
  const cards = h("ol", { class: "verdicts" });
  // Sentences have numbers that change every second; read out is only what is new.
  const spoken = h("p", { class: "unseen", role: "status", "aria-live": "polite" });
  let known = null;

  function speak(verdicts) {
    const now = new Map(verdicts.map((one) => [`${one.connection} ${one.cause} ${one.bottleneck}`, one.sentence]));
    const fresh = [...now].filter(([key]) => !known?.has(key)).map(([, sentence]) => sentence);
    if (fresh.length) spoken.textContent = fresh.slice(0, 3).join(" ").replaceAll("`", "");
    else if (known?.size && !now.size) spoken.textContent = "Nothing is held back any more.";
    known = now;
  }

  function show(verdicts) {
    speak(verdicts);
    const groups = together(verdicts);
    const shown = groups.slice(0, SHOWN_MAX).map((group) => card(group, choose));
    const more = groups.length - SHOWN_MAX;
    if (!verdicts.length) renewDeep(cards, h("li", { class: "banner" }, h("p", {}, "Nothing is held back.")));
    else renewDeep(cards, shown, more > 0 ? h("li", { class: "muted" }, `And ${more} more bottlenecks.`) : null);
  }

  return { element: h("section", { "aria-label": "Verdicts" }, cards, spoken), show };
}

/** Those whom the same thing holds back are one card, the worst of them first. */
function together(verdicts) {
  const groups = new Map();
  for (const one of verdicts) {
    const key = `${one.cause} ${one.bottleneck}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups.values()];
}

function card([one, ...others], choose) {
  const step = (id, label, kind) =>
    h("button", { type: "button", class: kind, title: id, onclick: () => choose("node", id) }, label);
  const steps = one.chain.map(
    (id) => h("li", {}, step(id, shortName(id, one), id === one.bottleneck ? "step is-bottleneck" : "step")),
  );
  const named = others.slice(0, OTHERS_MAX).map(
    (other) => h("li", {}, step(other.chain[0], `${other.name} ${percent(other.share_1m)}`, "step")),
  );
  const more = others.length > OTHERS_MAX ? h("li", {}, `and ${others.length - OTHERS_MAX} more`) : null;
  const share = Math.round(one.share_1m * 100);
  return h(
    "li",
    { class: "verdict", "data-cause": one.cause, "data-connection": one.name },
    h("p", { class: "sentence" }, words(one.sentence)),
    h("ol", { class: "chain", "aria-label": "Chain" }, steps),
    h(
      "div",
      { class: "verdict-facts" },
      badge(one.cause, "warn"),
      one.resource && one.resource !== one.cause ? badge(one.resource) : null,
      h("span", {}, `for ${duration(one.since_s)}`),
      h("meter", { min: 0, max: 100, value: share, "aria-label": "Share of the last minute" }),
      h("span", {}, `${percent(one.share_1m)} of the last minute`),
    ),
    others.length ? h("div", { class: "others" }, "Held back by the same: ", h("ul", {}, named, more)) : null,
  );
}

function shortName(id, verdict) {
  if (id === verdict.chain[0]) return verdict.name || verdict.connection;
  if (id.startsWith("alarm ")) return `${id.slice("alarm ".length)} alarm`;
  const number = /^channel .*\((\d+)\)$/.exec(id);
  return number ? `channel ${number[1]}` : id;
}

/** Verdicts that are over, the last one first. */
export function earlier(verdicts) {
  const over = verdicts.filter((one) => one.ended_ms !== null).sort(
    (a, b) => b.ended_ms - a.ended_ms,
  ).slice(0, SHOWN_MAX);
  if (!over.length) return null;
  const rows = over.map((one) => [
    moment(one.began_ms),
    duration((one.ended_ms - one.began_ms) / 1000),
    one.name || one.connection,
    badge(one.cause),
    words(one.sentence),
  ]);
  return h(
    "section",
    { class: "panel earlier" },
    h("h2", {}, "Earlier"),
    plainTable("Earlier verdicts", EARLIER, rows),
  );
}
