// Layout of a narrow screen: one chain below the other, each read from top to bottom. The store is last, unless it is
// the bottleneck: then it ends the chain that it holds up. What does not lead to the next box goes around in the
// margin.

import { byWeight } from "./layout.js";

const NODE_HEIGHT = 50;
const MARGIN = 34;
const JOINED = 38; // between two boxes of a chain: room for the words on the edge
const APART = 18;
const TOP = 4;
const SHOWN_MAX = 30;

export function lane({ nodes, edges }, width) {
  const order = chains(nodes, edges);
  const shown = order.slice(0, SHOWN_MAX);
  const around = edges.some((edge) => !isNext(edge, shown));
  const x = around ? MARGIN : 0;
  const spots = new Map();
  let y = TOP;
  shown.forEach((node, i) => {
    spots.set(node.id, { x, y, w: width - x, h: NODE_HEIGHT });
    const leads = edges.some(
      (edge) => edge.upstream === node.id && shown.includes(nodes.find((one) => one.id === edge.downstream)),
    );
    y += NODE_HEIGHT + (i === shown.length - 1 ? 0 : leads ? JOINED : APART);
  });
  const lines = edges.filter((edge) => spots.has(edge.upstream) && spots.has(edge.downstream));
  let track = 0;
  return {
    narrow: true,
    width,
    height: y + 6,
    heads: [],
    hidden: order.length - shown.length,
    nodes: shown.map(
      (node) => ({ ...node, ...spots.get(node.id), line: node.line ? `${node.kind} · ${node.line}` : node.kind }),
    ),
    edges: lines.map((edge) => {
      const [from, into] = [spots.get(edge.upstream), spots.get(edge.downstream)];
      return { ...edge, ...(isNext(edge, shown) ? straight(from, into) : aside(from, into, track++)), oneLine: true };
    }),
  };
}

/** From each connection down, what is not there yet; the last layer at the end, but for what ends a chain. */
function chains(nodes, edges) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const deepest = Math.max(...nodes.map((node) => node.layer), 0);
  const isEnd = (node) => node.isBottleneck || node.kind === "consumers";
  const isLast = (node) => node.layer === deepest && node.layer > 2 && !isEnd(node);
  const order = [];
  const seen = new Set();
  const visit = (node) => {
    if (!node || seen.has(node.id) || isLast(node)) return;
    seen.add(node.id);
    order.push(node);
    const leading = edges.filter((edge) => edge.upstream === node.id).map((edge) => byId.get(edge.downstream));
    leading.filter(Boolean).sort(byWeight).forEach(visit);
  };
  const starts = [...nodes].sort((a, b) => a.layer - b.layer || byWeight(a, b));
  starts.forEach(visit);
  return [...order, ...nodes.filter(isLast).sort(byWeight)];
}

function isNext(edge, shown) {
  const at = shown.findIndex((node) => node.id === edge.upstream);
  return at >= 0 && shown[at + 1]?.id === edge.downstream;
}

function straight(from, into) {
  const x = from.x + 34;
  return { path: `M${x} ${from.y + from.h}L${x} ${into.y}`, labelX: x + 12, labelY: (from.y + from.h + into.y) / 2 };
}

/** By the margin: out at the left, down (or up), and in again. */
function aside(from, into, track) {
  const out = MARGIN - 8 - (track % 4) * 7;
  const [y1, y2] = [from.y + from.h / 2 + 8, into.y + into.h / 2 - 8 + (track % 4) * 5];
  const turn = y2 > y1 ? 8 : -8;
  const path = `M${from.x} ${y1}Q${out} ${y1} ${out} ${y1 + turn}L${out} ${y2 - turn}Q${out} ${y2} ${into.x} ${y2}`;
  return { path, labelX: from.x + 8, labelY: from.y + from.h + 14, isAside: true };
}
