// Words of the History page: a card for each thing that held somebody back, forecasts as sentences, causes as badges.

import { h } from "../parts/dom.js";
import { bytes, count, duration, moment, rate } from "../parts/format.js";
import { words } from "../parts/marks.js";

const CAUSES = ["channel", "queue", "dead letters", "store", "memory", "disk", "store fault", "saturated"];
const WHO = { disk: "Free space on the disk", memory: "Memory" };
const SOON_S = 86_400; // what is foretold for later is in the table only; so is what has no trend
const FIT_MIN = 0.5;
const BRIEF_MS = 120_000; // what is shorter is told with seconds

export function causeClass(cause) {
  return `cause-${CAUSES.includes(cause) ? cause.replaceAll(" ", "-") : "unknown"}`;
}

export function causeBadge(cause) {
  return h("span", { class: `badge cause ${causeClass(cause)}` }, cause || "unknown");
}

/** 14:32, without seconds; with the day when it is another one. */
export function clock(ms) {
  return moment(ms).replace(/:\d\d$/, "");
}

/** What held somebody back, then what will happen soon, then what to set. */
export function cards(digest) {
  const held = digest.summary.slice(1).map(card);
  const soon = digest.forecasts.filter(isSoon).map((one) => hint("forecast", foretold(one)));
  const advised = digest.advised ? [hint("advice", digest.advised, made(digest))] : [];
  return [...held, ...soon, ...advised];
}

function isSoon({ in_s: seconds, r2: fit }) {
  return seconds !== null && seconds <= SOON_S && (seconds === 0 || fit >= FIT_MIN);
}

function card(one) {
  const last = one.chain.length - 1;
  const steps = one.chain.map((label, i) =>
    h("li", {}, h("span", { class: i === last ? "step is-bottleneck" : "step" }, label)),
  );
  const shown = one.ended_ms - one.began_ms < BRIEF_MS ? moment : clock;
  const span = `from ${shown(one.began_ms)} ${one.now ? "until now" : `to ${shown(one.ended_ms)}`}`;
  return h(
    "li",
    { class: `verdict ${causeClass(one.cause)}`, "data-cause": one.cause },
    h("p", { class: "sentence" }, words(one.text)),
    h("ol", { class: "chain", "aria-label": "Chain" }, steps),
    h("div", { class: "verdict-facts" }, causeBadge(one.cause), h("span", {}, span)),
    one.help.length ? h("p", { class: "help" }, h("b", {}, "What helps: "), words(`${one.help.join("; or ")}.`)) : null,
  );
}

/** When advice was made and of what: it may be of weeks ago. Empty where an older pipeline does not say. */
export function made({ advised_ms: ms, advised_for: goalAndLoad }) {
  if (typeof ms !== "number" && !goalAndLoad) return "";
  const at = typeof ms === "number" ? clock(ms) : "at an unknown time";
  return `${[`Made ${at}`, goalAndLoad].filter(Boolean).join(", ")}.`;
}

function hint(kind, text, fact) {
  return h(
    "li",
    { class: `verdict is-${kind}`, "data-cause": kind },
    h("p", { class: "sentence" }, words(text)),
    h(
      "div",
      { class: "verdict-facts" },
      h("span", { class: "badge accent" }, kind),
      fact ? h("span", {}, words(fact)) : null,
    ),
  );
}

/** Queue `orders` reaches its limit of 10,000 at 14:32, in 12 min, at this trend: 7,300 now, +3.8/s. */
export function foretold(one) {
  const shown = one.unit === "bytes" ? bytes : count;
  const now = `${shown(one.value)} now, ${trend(one)}`;
  const who = WHO[one.subject] ?? named(one.subject);
  const limit = `its limit of ${shown(one.limit)}`;
  const place = one.value === one.limit ? "at" : one.subject === "disk" ? "below" : "above";
  if (one.in_s === 0) return `${who} is ${place} ${limit}: ${now}.`;
  if (one.hits_at_ms === null) return `${who} does not reach ${limit} at this trend: ${now}.`;
  return `${who} reaches ${limit} at ${clock(one.hits_at_ms)}, in ${duration(one.in_s)}, at this trend: ${now}.`;
}

function trend({ slope_per_s: slope, unit }) {
  if (slope === null) return "trend unknown";
  const size = Math.abs(slope);
  return `${slope < 0 ? "−" : "+"}${unit === "bytes" ? `${bytes(size)}/s` : rate(size)}`;
}

/** queue orders -> Queue `orders` */
function named(label) {
  const [kind, ...rest] = label.replaceAll("`", "'").split(" ");
  return `${kind.charAt(0).toUpperCase()}${kind.slice(1)} \`${rest.join(" ")}\``;
}
