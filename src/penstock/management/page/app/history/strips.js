// Strips: rows of cells over time, the stronger the more. What is under the pointer, or where the arrow keys are, is
// said above them. On narrow screens the names stand above their rows.

import { h, put, s } from "../parts/dom.js";
import { moment } from "../parts/format.js";
import { axis, timeTicks } from "./axis.js";

const NARROW_PX = 560;
const LABELS_PX = 190;
const LETTER_PX = 7;
const BAR_PX = 16;
const AXIS_PX = 22;
const LEVELS = [0.02, 0.2, 0.4, 0.6, 0.8];

/** 1 is little, 5 most of the time; 0 is nothing. */
export function level(share) {
  return share > 0 ? Math.max(1, LEVELS.filter((least) => share > least).length) : 0;
}

/** A row: { label, share: [of each step], kind: [a class for each step, or nothing], said(i) -> text }. */
export function strips(title) {
  const told = h("span", { class: "when" });
  const drawing = s("svg", { class: "chart strips", tabindex: "0", role: "img", "aria-label": title });
  const element = h("div", {}, h("div", { class: "strips-head" }, told), drawing);
  let digest = null;
  let rows = [];
  let chosen = null; // { row, step }

  function size() {
    const width = Math.max(240, drawing.clientWidth || element.clientWidth);
    const narrow = width < NARROW_PX;
    return { width, narrow, left: narrow ? 0 : LABELS_PX, pitch: narrow ? 38 : 22, drop: narrow ? 18 : 3 };
  }

  function draw() {
    if (!digest || !rows.length) return put(drawing);
    const { width, narrow, left, pitch, drop } = size();
    const time = axis(digest, left, width);
    const floor = rows.length * pitch;
    const height = floor + AXIS_PX;
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawing.setAttribute("height", height);
    const lines = rows.map((row, i) => line(row, time, i * pitch, drop, narrow));
    const mark = chosen ? cursor(time, pitch, drop) : null;
    put(drawing, timeTicks(time, 0, floor), lines, mark);
    return say();
  }

  function cursor(time, pitch, drop) {
    const x = time.x(chosen.step);
    const width = Math.max(2, time.x(chosen.step + 1) - x);
    return s("rect", { class: "cell-cursor", x, y: chosen.row * pitch + drop, width, height: BAR_PX });
  }

  function say() {
    const row = chosen ? rows[chosen.row] : null;
    const words = row ? `${row.label}, ${moment(digest.since_ms + chosen.step * digest.step_s * 1000)}: ` : "";
    const known = row && chosen.step >= Math.floor(axis(digest, 0, 1).known);
    const text = row ? words + (known ? row.said(chosen.step) : "before the tables begin") : "";
    put(told, text);
    drawing.setAttribute("aria-label", text ? `${title}. ${text}` : title);
  }

  function look(row, step) {
    const bound = (value, most) => Math.max(0, Math.min(most - 1, value));
    chosen = row === null || !rows.length ? null : { row: bound(row, rows.length), step: bound(step, digest.steps) };
    draw();
  }

  drawing.addEventListener("pointermove", (event) => {
    if (!digest) return;
    const { width, left, pitch } = size();
    const box = drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const y = event.clientY - box.top;
    if (x < left || y > rows.length * pitch) look(null);
    else look(Math.floor(y / pitch), Math.floor(((x - left) / (width - left)) * digest.steps));
  });
  drawing.addEventListener("pointerleave", () => look(null));
  drawing.addEventListener("blur", () => look(null));
  drawing.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!(event.key in moves) || !rows.length) return;
    event.preventDefault();
    const [down, along] = moves[event.key];
    if (chosen) look(chosen.row + down, chosen.step + along);
    else look(0, digest.steps - 1);
  });
  new ResizeObserver(() => draw()).observe(element);

  function show(newest, given) {
    digest = newest;
    rows = given;
    if (chosen && (chosen.row >= rows.length || chosen.step >= digest.steps)) chosen = null;
    draw();
  }

  return { element, show };
}

function line(row, time, top, drop, narrow) {
  const y = top + drop;
  const most = narrow ? Math.floor(time.width / LETTER_PX) : Math.floor(LABELS_PX / LETTER_PX);
  const name = row.label.length > most ? `${row.label.slice(0, most - 1)}…` : row.label;
  const label = narrow
    ? s("text", { class: "strip-name", x: 0, y: y - 5 }, name)
    : s("text", { class: "strip-name", x: time.left - 8, y: y + 12, "text-anchor": "end" }, name);
  const begin = time.x(time.known);
  const ground = s("rect", {
    class: "strip-ground",
    x: begin,
    y,
    width: time.width - begin,
    height: BAR_PX,
    rx: 2,
  });
  const classOf = (i) => (row.share[i] > 0 ? `${row.kind?.[i] ?? ""} level-${level(row.share[i])}`.trim() : "");
  const cells = [];
  let from = 0;
  for (let i = 1; i <= time.steps; i += 1) {
    if (i < time.steps && classOf(i) === classOf(from)) continue;
    const kind = classOf(from);
    // A little wider, so that there is no gap between cells.
    const width = (time.x(i) - time.x(from) + 0.4).toFixed(2);
    if (kind) cells.push(s("rect", { class: `cell ${kind}`, x: time.x(from).toFixed(2), y, width, height: BAR_PX }));
    from = i;
  }
  return s("g", {}, label, ground, cells);
}
