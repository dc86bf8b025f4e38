// Marks: small things that many views show: states, badges, rates of a counter, lists of facts.

import { h } from "./dom.js";
import { duration, plain, rate } from "./format.js";
import * as may from "./may.js";

/** running, flow, blocked, idle …: a word with a colour, never a colour alone. */
export function state(word) {
  const kind = {
    running: "good",
    flow: "warn",
    blocking: "bad",
    blocked: "bad",
    saturated: "warn",
    idle: "calm",
  }[word];
  return h("span", { class: `badge ${kind ?? "calm"}` }, word ?? "–");
}

/** The state of a connection, channel or queue, and what blocks it. */
export function flowState(row) {
  const by = (row.blocked_by ?? []).map(
    (one) => (typeof one === "string" ? one : (one.stage ?? one.alarm)),
  ).filter(Boolean);
  const title = row.blocked_seconds ? `blocked ${duration(row.blocked_seconds)} in all` : null;
  const why = row.state === "flow" && may.monitor() ? [" ", h("a", { href: "#/flow", class: "why" }, "why?")] : null;
  return [state(row.state), by.length ? h("small", { class: "by", title }, ` by ${by.join(", ")}`) : null, why];
}

export function badge(word, kind = "calm") {
  return h("span", { class: `badge ${kind}` }, word);
}

/** The rate of a counter, as RabbitMQ's JSON has it. */
export function rateOf(row, counter) {
  return row.message_stats?.[`${counter}_details`]?.rate;
}

export function shownRate(row, counter) {
  return rate(rateOf(row, counter));
}

/** Text with `names` in it, as the broker writes them. */
export function words(text) {
  return String(text ?? "").split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

/** A number that matters, with its name above and a remark below. */
export function tile(name, value, below) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value, below ? h("small", {}, below) : null));
}

/** Facts: pairs of a name and a value or node. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Arguments, properties, definitions: key and value in one line each. */
export function pairs(object) {
  const found = Object.entries(object ?? {});
  if (!found.length) return "–";
  return h("span", { class: "pairs" }, found.map(([key, value]) => h("code", {}, `${key}: ${plain(value)}`)));
}

/** Features of a queue or exchange, as short badges with their meaning. */
export function features(row) {
  const found = [];
  if (row.durable) found.push(["D", "durable"]);
  if (row.auto_delete) found.push(["AD", "deleted when unused"]);
  if (row.exclusive) found.push(["Ex", "exclusive"]);
  if (row.internal) found.push(["I", "internal"]);
  const args = row.arguments ?? {};
  if (args["x-message-ttl"] !== undefined) found.push(["TTL", `messages live ${args["x-message-ttl"]} ms`]);
  if (args["x-expires"] !== undefined) found.push(["Exp", `deleted after ${args["x-expires"]} ms without use`]);
  if (args["x-max-length"] !== undefined) found.push(["Lim", `at most ${args["x-max-length"]} messages`]);
  if (args["x-max-length-bytes"] !== undefined) found.push(["Lim B", `at most ${args["x-max-length-bytes"]} bytes`]);
  if (args["x-dead-letter-exchange"] !== undefined) found.push(
    ["DLX", `dead letters to ${args["x-dead-letter-exchange"] || "the default exchange"}`],
  );
  if (args["x-max-priority"] !== undefined) found.push(["Pri", `priorities up to ${args["x-max-priority"]}`]);
  if (args["x-single-active-consumer"]) found.push(["SAC", "single active consumer"]);
  if (args["alternate-exchange"] !== undefined) found.push(
    ["AE", `what is not routed goes to ${args["alternate-exchange"]}`],
  );
  if (row.policy) found.push([row.policy, `policy ${row.policy}`]);
  return h(
    "span",
    { class: "features" },
    found.map(([short, long]) => h("abbr", { class: "badge calm", title: long }, short)),
  );
}
