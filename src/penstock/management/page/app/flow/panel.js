// Panel: what is known of the stage or link that was chosen, what holds it up, and the knobs, right there.

import { button, h, put, renewDeep } from "../parts/dom.js";
import { bytes, count, duration, percent, rate } from "../parts/format.js";
import { badge, facts, words } from "../parts/marks.js";
import { to } from "../parts/router.js";
import { knobForms } from "./knobs.js";

const HOPS = {
  reader_channel: "from connections to channels",
  channel_queue: "from channels to queues",
  queue_store: "from queues to the store",
};

export function panel({ close, changed }) {
  const title = h("h2", { id: "flow-panel-title", tabindex: "-1" });
  const about = h("div");
  const minute = h("div", { class: "minute" });
  const sentences = h("div");
  const knobs = h("div", { class: "knobs" });
  const shut = button("Close", close, "quiet", "Close the panel");
  const element = h(
    "aside",
    { class: "panel flow-panel", "aria-labelledby": "flow-panel-title", hidden: true },
    h("div", { class: "panel-head" }, title, shut),
    sentences,
    about,
    minute,
    knobs,
  );
  let knobsFor = "";
  let made = null;

  function show(chosen, model, settings, history) {
    element.hidden = chosen === null;
    if (chosen === null) return put(knobs, (knobsFor = ""));
    const node = chosen.kind === "node" ? model.nodes.find((one) => one.id === chosen.key) : null;
    const edge = chosen.kind === "edge" ? model.edges.find((one) => one.key === chosen.key) : null;
    if (!node && !edge) {
      put(title, "Gone");
      return renewDeep(about, h("p", {}, "It is not in the chain any more."));
    }
    put(title, node ? headOf(node) : "Link");
    renewDeep(about, node ? nodeFacts(node) : edgeFacts(edge));
    renewDeep(minute, node ? lastMinute(history?.stages?.[node.id]) : null);
    const own = model.verdicts.filter(
      (one) => (node ? one.chain.includes(node.id) : one === edge.verdict || follows(one, edge)),
    );
    renewDeep(sentences, own.slice(0, 5).map((one) => h("p", { class: "sentence" }, words(one.sentence))));
    return showKnobs(chosen, own, edge, settings);
  }

  /** Inputs stay while what they are for stays: nothing is taken from under one's fingers. */
  function showKnobs(chosen, own, edge, settings) {
    const hop = edge?.link ? [`credit.${edge.link.hop}`, `credit.${edge.link.hop}_bytes`] : [];
    const wanted = hop.map((setting) => ({ setting, value: "" }));
    const advised = own[0]?.knobs ?? [];
    const all = [...advised, ...wanted.filter((one) => !advised.some((other) => other.setting === one.setting))];
    const name = `${chosen.key} ${all.map((one) => one.setting).join(" ")} ${settings.size > 0}`;
    if (name === knobsFor) return made.update();
    knobsFor = name;
    if (knobs.contains(document.activeElement)) title.focus(); // a knob that has done its work goes
    made = knobForms(all, settings, changed);
    return put(knobs, all.length ? h("h3", {}, "What helps") : null, made.elements);
  }

  return { element, show, focus: () => title.focus() };
}

function headOf(node) {
  if (node.kind === "store") return "Store";
  return node.title.startsWith(node.kind) || node.kind === "alarm" ? node.title : `${node.kind} ${node.title}`;
}

function follows(verdict, edge) {
  const at = verdict.chain.indexOf(edge.upstream);
  return at >= 0 && verdict.chain[at + 1] === edge.downstream;
}

function reasons(stage) {
  return (stage.blocked_by ?? []).map(
    (one) => `${one.stage ?? (one.alarm ? `${one.alarm} alarm` : one.reason)} for ${duration(one.for_s)}`,
  ).join("; ");
}

function nodeFacts(node) {
  const { stage } = node;
  if (!stage) return facts([["What", node.alarm?.reason ?? "Those who take from the queue."]]);
  return facts([
    ["Name", link(stage)],
    ["State", stateOf(node)],
    ["Blocked by", reasons(stage)],
    ["Blocked, last minute", percent(stage.share_1m)],
    ["Blocked, all time", `${count(stage.blocks)} times, ${duration(stage.blocked_s)}`],
    ["Messages", rate(node.speed)],
    ["Mailbox", count(stage.mailbox)],
    ["Parked", stage.parked_bytes === undefined ? null : bytes(stage.parked_bytes)],
    ["In the queue", stage.messages === undefined ? null : count(stage.messages)],
    ["Consumers", stage.consumers === undefined ? null : count(stage.consumers)],
    ["Confirms held", stage.held ? count(stage.held) : null],
    ["Not confirmed", stage.unconfirmed ? count(stage.unconfirmed) : null],
    ["User", stage.user],
    ["Vhost", stage.vhost],
  ]);
}

function stateOf({ stage, isBottleneck }) {
  if (stage.blocked) return badge("blocked", "bad");
  if (stage.saturated) return badge("saturated", "warn");
  return isBottleneck ? badge("bottleneck", "warn") : badge("running", "good");
}

function link(stage) {
  const isQueue = stage.kind === "queue" || stage.kind === "stream";
  if (isQueue) return h("a", { href: to("queues", stage.vhost, stage.name) }, stage.name);
  if (stage.kind === "connection") return h("a", { href: to("connections", stage.name) }, stage.name);
  if (stage.kind === "channel") return h("a", { href: to("channels", stage.name) }, stage.name);
  return stage.name;
}

function edgeFacts(edge) {
  const { link: own } = edge;
  return facts([
    ["From", edge.upstream],
    ["To", edge.downstream],
    ["Hop", own ? (HOPS[own.hop] ?? own.hop) : edge.label],
    ["State", edgeState(edge)],
    ["Credit", own ? `${count(own.credit)} of ${count(own.initial)}` : null],
    ["Credit in bytes", own ? `${bytes(own.credit_bytes)} of ${bytes(own.initial_bytes)}` : null],
    ["Under way", own ? `${count(own.in_flight)}, ${bytes(own.in_flight_bytes)}` : null],
    ["Deferred grants", own ? count(own.deferred) : null],
  ]);
}

function edgeState(edge) {
  if (edge.blocking) return badge(`blocks for ${edge.older}`, "bad");
  return edge.flowing ? badge("flows", "good") : badge("idle");
}

/** A cell for every second: how much of it the stage was blocked. */
function lastMinute(shares) {
  if (!shares?.length) return null;
  const shown = shares.slice(-60);
  const worst = shown.filter((share) => share > 0).length;
  const cells = shown.map((share) => h("i", { class: `level-${Math.ceil((share ?? 0) * 4)}` }));
  return [
    h("h3", {}, "The last minute"),
    h(
      "div",
      { class: "cells", role: "img", "aria-label": `Blocked in ${worst} of the last ${shown.length} seconds` },
      cells,
    ),
  ];
}
