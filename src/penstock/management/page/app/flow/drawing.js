// Drawing: the chain as SVG. An element stays the same as long as its stage or link is there, so that focus, a click
// and the movement of an edge survive the next look. Every node and edge can be reached and opened with the keyboard.

import { put, s } from "../parts/dom.js";
import { ageClass } from "./model.js";
import { layout } from "./layout.js";

const LETTER = 6.5; // pixels of one, about: words are cut by it
const TITLE_LETTER = 7.4;

/** `choose(kind, key)` is called with "node" or "edge" and its id. */
export function drawing(choose) {
  const heads = s("g", { "aria-hidden": "true" });
  const lines = s("g", { role: "list", "aria-label": "Links" });
  const boxes = s("g", { role: "list", "aria-label": "Stages" });
  const element = s(
    "svg",
    { class: "flow-graph", role: "group", "aria-label": "The chain, from connections to the store" },
    heads,
    lines,
    boxes,
  );
  const nodes = new Map();
  const edges = new Map();

  function show(model, width, chosen) {
    const picture = layout(model, width);
    element.setAttribute("viewBox", `0 0 ${picture.width} ${picture.height}`);
    element.setAttribute("height", picture.height);
    element.classList.toggle("is-narrow", picture.narrow);
    put(heads, picture.heads.map((one) => s("text", { class: "layer-name", x: one.x, y: one.y }, one.name)));
    const crowded = picture.edges.length > 16 || model.nodes.some((one) => one.kind === "alarm");
    keep(
      lines,
      edges,
      picture.edges,
      (one) => one.key,
      () => makeEdge(choose),
      (made, one) => updateEdge(made, one, chosen, crowded),
    );
    keep(
      boxes,
      nodes,
      picture.nodes,
      (one) => one.id,
      () => makeNode(choose),
      (made, one) => updateNode(made, one, chosen),
    );
    return picture.hidden;
  }

  return { element, show };
}

function keep(group, made, wanted, key, make, update) {
  const names = new Set(wanted.map(key));
  for (const [name, one] of made) {
    if (names.has(name)) continue;
    one.element.remove();
    made.delete(name);
  }
  wanted.forEach((one) => {
    const name = key(one);
    if (!made.has(name)) {
      made.set(name, make());
      group.append(made.get(name).element);
    }
    update(made.get(name), one);
  });
  // In reading order, layer by layer: the order of the Tab key. An element that has its place is not touched.
  wanted.forEach((one, i) => {
    const { element } = made.get(key(one));
    if (group.children[i] !== element) group.insertBefore(element, group.children[i] ?? null);
  });
}

function pressable(group, open) {
  group.addEventListener("click", open);
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  });
}

function makeNode(choose) {
  const parts = {
    box: s("rect", { class: "box", rx: 8 }),
    side: s("rect", { class: "side", rx: 2, width: 4 }),
    title: s("text", { class: "title" }),
    line: s("text", { class: "words" }),
    whole: s("title"),
  };
  const inner = s("g", { role: "button", tabindex: "0" }, parts.whole, parts.box, parts.side, parts.title, parts.line);
  const made = { ...parts, inner, element: s("g", { role: "listitem" }, inner), id: "" };
  pressable(inner, () => choose("node", made.id));
  return made;
}

function updateNode(made, one, chosen) {
  made.id = one.id;
  made.inner.setAttribute("transform", `translate(${one.x} ${one.y})`);
  const classes = ["node", `is-${one.kind}`];
  if (one.blocked) classes.push("is-blocked", ageClass(one.age));
  if (one.saturated) classes.push("is-saturated");
  if (one.isBottleneck) classes.push("is-bottleneck");
  if (!one.matters && !one.speed) classes.push("is-idle");
  if (chosen?.kind === "node" && chosen.key === one.id) classes.push("is-chosen");
  made.inner.setAttribute("class", classes.join(" "));
  made.inner.setAttribute("data-id", one.id);
  made.inner.setAttribute(
    "aria-label",
    `${one.kind} ${one.title}: ${one.line || "idle"}${one.isBottleneck ? ", the bottleneck" : ""}`,
  );
  set(made.box, { width: one.w, height: one.h });
  set(made.side, { x: 7, y: 9, height: one.h - 18 });
  set(made.title, { x: 19, y: 21 });
  set(made.line, { x: 19, y: 38 });
  text(made.title, cut(one.title, one.w - 27, TITLE_LETTER));
  text(made.line, fit(one.line || "idle", one.w - 24));
  text(made.whole, one.stage?.name ?? one.id);
}

function makeEdge(choose) {
  const parts = {
    hit: s("path", { class: "hit" }),
    wire: s("path", { class: "wire" }),
    label: s("text", { class: "label", "text-anchor": "middle" }),
    age: s("text", { class: "label age", "text-anchor": "middle" }),
  };
  const inner = s("g", { role: "button", tabindex: "0" }, parts.hit, parts.wire, parts.label, parts.age);
  const made = { ...parts, inner, element: s("g", { role: "listitem" }, inner), key: "" };
  pressable(inner, () => choose("edge", made.key));
  return made;
}

function updateEdge(made, one, chosen, crowded) {
  made.key = one.key;
  const isChosen = chosen?.kind === "edge" && chosen.key === one.key;
  const classes = ["edge", one.blocking ? `is-blocking ${ageClass(one.age)}` : one.flowing ? "is-flowing" : "is-idle"];
  if (isChosen) classes.push("is-chosen");
  made.inner.setAttribute("class", classes.join(" "));
  made.inner.setAttribute("data-key", one.key);
  const credit = one.label.includes("/") ? `credit ${one.label.replace("/", "of")}` : one.label || "alarm";
  made.inner.setAttribute("aria-label", `${one.key}: ${credit}${one.blocking ? `, blocks for ${one.older}` : ""}`);
  made.hit.setAttribute("d", one.path);
  made.wire.setAttribute("d", one.path);
  made.wire.setAttribute("stroke-width", ((one.blocking ? 3 : 1.5) + 2.5 * one.used).toFixed(1));
  const quiet = !one.blocking && !isChosen && (crowded || one.isAside);
  const words = quiet ? "" : one.label;
  made.label.setAttribute("text-anchor", one.oneLine ? "start" : "middle");
  set(made.label, { x: one.labelX, y: one.labelY + (one.oneLine ? 4 : -5) });
  set(made.age, { x: one.labelX, y: one.labelY + 14 });
  text(made.label, one.oneLine ? [words, one.older].filter(Boolean).join(" · ") : words);
  text(made.age, one.oneLine ? "" : one.older);
}

function set(element, values) {
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
}

function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/** As many of the parts of a line as there is room for. */
function fit(line, room) {
  const [first, ...parts] = line.split(" · ");
  let words = first;
  for (const part of parts) {
    if ((words.length + part.length + 3) * LETTER > room) break;
    words += ` · ${part}`;
  }
  return cut(words, room, LETTER);
}

function cut(words, room, letter) {
  const most = Math.max(6, Math.floor(room / letter));
  return words.length <= most ? words : `${words.slice(0, most - 1)}…`;
}
