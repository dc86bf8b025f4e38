// Layout of a wide screen: a column for each layer, messages go right. Only numbers here; drawing.js makes elements of
// them. For narrow screens: lane.js.

import { lane } from "./lane.js";

const NARROW_BELOW = 640;
const NODE = { width: 200, least: 132, height: 50 };
const BETWEEN = 96; // columns: room for the words on an edge
const GAP = 16;
const TOP = 30;
const SHOWN_MAX = 14; // in one layer; the rest is counted
const HEADS = ["Connections", "Channels", "Queues"];

export function layout(model, width) {
  if (width < NARROW_BELOW) return lane(model, width);
  const { nodes, edges } = model;
  const layers = [];
  for (const node of nodes) (layers[node.layer] ??= []).push(node);
  const used = layers.map((layer, number) => ({ layer, number })).filter(({ layer }) => layer?.length);
  const w = Math.max(NODE.least, Math.min(NODE.width, width / used.length - BETWEEN));
  const upstream = new Map();
  for (const edge of edges) upstream.set(edge.downstream, [...(upstream.get(edge.downstream) ?? []), edge.upstream]);
  const spots = new Map();
  const heads = [];
  let height = 0;
  let hidden = 0;
  used.forEach(({ layer, number }, i) => {
    const x = used.length === 1 ? 0 : (i * (width - w)) / (used.length - 1);
    const shown = sorted(layer, (node) => near(node, upstream, spots));
    hidden += layer.length - shown.length;
    heads.push({ name: headOf(number, shown), x, y: 14 });
    let next = TOP;
    for (const node of shown) {
      const wanted = near(node, upstream, spots);
      const y = Math.max(next, Number.isFinite(wanted) ? wanted : next);
      spots.set(node.id, { x, y, w, h: NODE.height });
      next = y + NODE.height + GAP;
    }
    height = Math.max(height, next);
  });
  const lines = edges.filter((edge) => spots.has(edge.upstream) && spots.has(edge.downstream));
  return {
    narrow: false,
    width,
    height,
    heads,
    hidden,
    nodes: nodes.filter((node) => spots.has(node.id)).map((node) => ({ ...node, ...spots.get(node.id) })),
    edges: lines.map(
      (edge) => ({ ...edge, ...curve(spots.get(edge.upstream), spots.get(edge.downstream), labelAt(edge, lines)) }),
    ),
  };
}

function headOf(number, shown) {
  if (HEADS[number]) return HEADS[number];
  if (shown.some((node) => node.kind === "queue")) return "Dead letters";
  const hasStore = shown.some((node) => node.kind === "store");
  if (!shown.some((node) => node.kind === "consumers")) return "Store";
  return hasStore ? "Store and consumers" : "Consumers";
}

/** The height of those it comes from: chains become straight lines. */
function near(node, upstream, spots) {
  const places = (upstream.get(node.id) ?? []).map((id) => spots.get(id)).filter(Boolean);
  return places.length ? places.reduce((sum, spot) => sum + spot.y, 0) / places.length : Infinity;
}

/** As many as there is room for, those that matter rather than others; in order of where they come from. */
function sorted(layer, nearOf) {
  const kept = layer.length > SHOWN_MAX ? [...layer].sort(byWeight).slice(0, SHOWN_MAX) : layer;
  const keyed = kept.map((node) => ({ node, near: nearOf(node) }));
  // What was held back within the last minute is on top: it does not jump with every block.
  const inOrder = (a, b) => Number(b.matters) - Number(a.matters) || byName(a, b);
  keyed.sort((a, b) => (a.near === b.near ? inOrder(a.node, b.node) : a.near - b.near));
  return keyed.map(({ node }) => node);
}

const weight = (node) => (node.verdict?.share_1m ?? 0) + (node.isBottleneck ? 2 : 0) + (node.matters ? 1 : 0);
export const byName = (a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
export const byWeight = (a, b) => weight(b) - weight(a) || byName(a, b);

/** How far along an edge its words are: nearer to the end at which fewer edges meet. */
function labelAt(edge, lines) {
  const leaving = lines.filter((one) => one.upstream === edge.upstream).length;
  const coming = lines.filter((one) => one.downstream === edge.downstream).length;
  return coming > leaving ? 0.36 : leaving > coming ? 0.64 : 0.5;
}

function curve(from, into, part) {
  const [x1, y1, x2, y2] = [from.x + from.w, from.y + from.h / 2, into.x, into.y + into.h / 2];
  const bend = Math.max(20, (x2 - x1) / 2);
  const at = (p0, p1, p2, p3) =>
    (1 - part) ** 3 * p0 + 3 * (1 - part) ** 2 * part * p1 + 3 * (1 - part) * part ** 2 * p2 + part ** 3 * p3;
  return {
    path: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    labelX: at(x1, x1 + bend, x2 - bend, x2),
    labelY: at(y1, y1, y2, y2),
  };
}
