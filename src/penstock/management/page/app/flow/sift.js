// Sift: of all that could be drawn, the chains of the verdicts, or what belongs to a name that was typed.

/** The chains of the verdicts alone. */
export function heldOnly(all) {
  return keep(all, new Set(all.verdicts.flatMap((one) => one.chain)));
}

/** Stages with this in their name, what they come from, and what they lead to. */
export function byName(all, typed) {
  const wanted = typed.toLowerCase();
  const isNamed = (node) => [node.title, node.id].some((name) => name.toLowerCase().includes(wanted));
  const found = all.nodes.filter(isNamed).map((node) => node.id);
  const above = reach(found, all.edges, "downstream", "upstream");
  const below = reach(found, all.edges, "upstream", "downstream");
  return keep(all, new Set([...above, ...below]));
}

function reach(from, edges, here, there) {
  const seen = new Set(from);
  const waiting = [...from];
  while (waiting.length) {
    const id = waiting.pop();
    for (const edge of edges) {
      if (edge[here] !== id || seen.has(edge[there])) continue;
      seen.add(edge[there]);
      waiting.push(edge[there]);
    }
  }
  return seen;
}

function keep(all, ids) {
  const isIn = (edge) => ids.has(edge.upstream) && ids.has(edge.downstream);
  return { ...all, nodes: all.nodes.filter((node) => ids.has(node.id)), edges: all.edges.filter(isIn) };
}
