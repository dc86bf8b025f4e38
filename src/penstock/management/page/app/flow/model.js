// Model: of a flow snapshot, and the one before, what can be drawn: nodes, edges, their age and their words.
// A pure function: no elements here. Alarms and the consumers of a saturated queue are no stages, but hold stages up:
// they become nodes too, so that every chain of a verdict can be seen whole.

import { brief, bytes, count, duration, percent, rate, short } from "../parts/format.js";

const ALARM = "alarm ";
const CONSUMERS = "consumers of ";
const LAYERS = { connection: 0, channel: 1, alarm: 1, queue: 2, stream: 2 };
const AGES_S = [3, 15, 60]; // a block is young, growing, old, or very old

export function ageClass(seconds) {
  return `age-${AGES_S.filter((limit) => seconds >= limit).length}`;
}

export function model(flow, before) {
  const verdicts = flow.verdicts ?? [];
  const bottlenecks = new Set(verdicts.map((one) => one.bottleneck).filter(Boolean));
  const chains = chainEdges(verdicts);
  const sinces = chainAges(verdicts);
  const drawn = flow.stages.filter(
    (stage) => stage.kind !== "channel" || stage.received > 0 || stage.blocked || sinces.has(stage.id),
  );
  const nodes = new Map(drawn.map((stage) => [stage.id, node(stage, flow, before, bottlenecks, sinces)]));
  for (const verdict of verdicts) {
    for (const id of verdict.chain) if (!nodes.has(id)) nodes.set(id, stranger(id, flow, bottlenecks));
    const held = nodes.get(verdict.chain[0]);
    if (held) held.verdict = verdict;
  }
  const edges = new Map();
  for (const link of flow.links) {
    if (nodes.has(link.upstream) && nodes.has(link.downstream)) add(edges, edge(link, flow, chains, before));
  }
  for (const [key, [upstream, downstream, verdict]] of chains) {
    if (!edges.has(key)) add(edges, chainEdge(key, upstream, downstream, verdict));
  }
  place(nodes, edges);
  return { nodes: [...nodes.values()], edges: [...edges.values()], verdicts };
}

const keyOf = (upstream, downstream) => `${upstream} → ${downstream}`;

function add(edges, one) {
  edges.set(one.key, one);
}

function chainEdges(verdicts) {
  const found = new Map();
  for (const verdict of verdicts) {
    verdict.chain.slice(1).forEach((downstream, i) => {
      const key = keyOf(verdict.chain[i], downstream);
      const known = found.get(key);
      if (!known || known[2].since_s < verdict.since_s) found.set(key, [verdict.chain[i], downstream, verdict]);
    });
  }
  return found;
}

/** How long the stages before a bottleneck are held up: blocks flicker, so it is longer than this moment's block. */
function chainAges(verdicts) {
  const found = new Map();
  for (const verdict of verdicts) {
    for (const id of verdict.chain.slice(0, -1)) found.set(id, Math.max(found.get(id) ?? 0, verdict.since_s));
  }
  return found;
}

function node(stage, flow, before, bottlenecks, sinces) {
  const speed = speedOf(stage, flow, before);
  const held = Math.max(sinces.get(stage.id) ?? -1, stage.blocked ? (stage.blocked_for_s ?? 0) : -1);
  const age = held >= 0 ? held : null;
  const isBottleneck = bottlenecks.has(stage.id) || bottlenecks.has(CONSUMERS + stage.id);
  return {
    id: stage.id,
    kind: stage.kind,
    stage,
    speed,
    blocked: age !== null,
    saturated: stage.saturated === true,
    age,
    isBottleneck: bottlenecks.has(stage.id),
    matters: stage.blocked || stage.saturated === true || isBottleneck || (stage.share_1m ?? 0) > 0.02,
    title: titleOf(stage),
    line: lineOf(stage, speed, age, bottlenecks.has(stage.id)),
  };
}

/** What is in a chain and no stage of the snapshot. */
function stranger(id, flow, bottlenecks) {
  const isAlarm = id.startsWith(ALARM);
  const source = id.slice(ALARM.length);
  const alarm = isAlarm ? flow.alarms.find((one) => one.source === source) : null;
  return {
    id,
    kind: isAlarm ? "alarm" : id.startsWith(CONSUMERS) ? "consumers" : id.split(" ")[0],
    alarm,
    speed: null,
    blocked: false,
    saturated: false,
    age: alarm?.for_s ?? null,
    isBottleneck: bottlenecks.has(id),
    matters: true,
    ...wordsOf(id, source, alarm),
  };
}

function wordsOf(id, source, alarm) {
  if (id.startsWith(CONSUMERS)) return { title: "consumers", line: "too slow, or none" };
  if (!id.startsWith(ALARM)) return { title: id, line: "gone" };
  return { title: `${source} alarm`, line: alarm ? `on for ${duration(alarm.for_s)}` : "on" };
}

function speedOf(stage, flow, before) {
  const then = before?.stages.find((one) => one.id === stage.id);
  const seconds = before ? (flow.at_ns - before.at_ns) / 1e9 : 0;
  return then && seconds > 0 ? Math.max(0, stage.received - then.received) / seconds : null;
}

function titleOf(stage) {
  if (stage.kind === "connection") return stage.client_name || stage.name;
  if (stage.kind === "channel") return `channel ${stage.number ?? stage.name}`;
  return stage.name;
}

function lineOf(stage, speed, age, isBottleneck) {
  const words = [];
  if (stage.saturated) words.push(`saturated ${brief(stage.saturated_for_s)}`);
  else if (age !== null) words.push(`blocked ${brief(age)}`);
  else if (isBottleneck) words.push("bottleneck");
  else if (stage.share_1m > 0.02) words.push(`was blocked ${percent(stage.share_1m)}`);
  if (speed !== null) words.push(rate(speed));
  if (stage.held) words.push(`${count(stage.held)} held`);
  else if (stage.kind === "queue" && stage.messages) words.push(`${count(stage.messages)} in it`);
  else if (stage.parked_bytes) words.push(`${bytes(stage.parked_bytes)} parked`);
  return words.join(" · ");
}

function edge(link, flow, chains, before) {
  const key = keyOf(link.upstream, link.downstream);
  const upstream = flow.stages.find((stage) => stage.id === link.upstream);
  const reason = upstream?.blocked_by?.find((one) => one.stage === link.downstream);
  const onChain = chains.get(key)?.[2];
  const blocking = link.blocking || Boolean(onChain);
  const used = link.initial > 0 ? Math.min(1, Math.max(0, 1 - link.credit / link.initial)) : 0;
  const age = blocking ? Math.max(reason?.for_s ?? 0, onChain?.since_s ?? 0) : null;
  const moved = upstream ? (speedOf(upstream, flow, before) ?? 0) > 0 : false;
  return {
    key,
    upstream: link.upstream,
    downstream: link.downstream,
    link,
    blocking,
    age,
    used,
    verdict: onChain ?? null,
    flowing: !blocking && (link.in_flight > 0 || moved),
    label: labelOf(link, onChain),
    older: age === null ? "" : duration(age),
  };
}

function labelOf(link, verdict) {
  if (verdict?.cause === "saturated" && !link.blocking) return "waits for confirms";
  return link.initial > 0 ? `${short(link.credit)} / ${short(link.initial)}` : "no limit";
}

/** An edge of a chain that is no link of credit: an alarm, consumers, confirms. */
function chainEdge(key, upstream, downstream, verdict) {
  const label = downstream.startsWith(ALARM) ? "" : "confirms held";
  return {
    key,
    upstream,
    downstream,
    link: null,
    blocking: true,
    age: verdict.since_s,
    used: 1,
    verdict,
    flowing: false,
    label,
    older: duration(verdict.since_s),
  };
}

/** Layers: connections, channels, queues, queues of dead letters, and last the store and the consumers. */
function place(nodes, edges) {
  let deepest = 2;
  for (const one of nodes.values()) one.layer = LAYERS[one.kind] ?? null;
  const isQueue = (id) => ["queue", "stream"].includes(nodes.get(id)?.kind);
  for (let turn = 0; turn < 3; turn += 1) {
    for (const one of edges.values()) {
      if (!isQueue(one.upstream) || !isQueue(one.downstream)) continue;
      const layer = nodes.get(one.upstream).layer + 1;
      if (layer > nodes.get(one.downstream).layer && layer <= 4) nodes.get(one.downstream).layer = layer;
    }
  }
  for (const one of nodes.values()) if (one.layer !== null) deepest = Math.max(deepest, one.layer);
  for (const one of nodes.values()) one.layer ??= deepest + 1;
}
