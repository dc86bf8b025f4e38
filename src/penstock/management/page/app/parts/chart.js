// Chart: lines over time, drawn as SVG. The legend has the values as text: of now, or of the moment under the pointer
// or the arrow keys. A limit is a dashed line. Not here: where the numbers come from (views/overview.js).

import { h, put, s } from "./dom.js";
import { moment } from "./format.js";

const HEIGHT = 170;
const LEFT = 52;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;
const GAP_MAX = 6; // samples: a store with little to do does not sync in every second

/**
 * `series`: [{ name, label, limit: true for a dashed line }]; `format` makes text of a value; `heading` is its level,
 * below that of a panel which it is in.
 */
export function chart({ title, series, format, note, heading = "h2" }) {
  const legend = h("ul", { class: "legend" });
  const drawing = s("svg", { class: "chart", height: HEIGHT, tabindex: "0", role: "img", "aria-label": title });
  const when = h("span", { class: "when" });
  const element = h(
    "figure",
    { class: "panel chart-panel" },
    h("figcaption", {}, h(heading, {}, title), when, note ? h("span", { class: "about" }, note) : null),
    legend,
    drawing,
  );
  let times = [];
  let values = [];
  let chosen = null; // index of the moment that is looked at

  function draw() {
    const width = Math.max(220, drawing.clientWidth || element.clientWidth - 32);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const top = nice(Math.max(0, ...values.flat().filter(Number.isFinite)), format.binary);
    const first = times[0];
    const span = Math.max(1, times.at(-1) - first);
    const x = (i) => LEFT + ((times[i] - first) / span) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const grid = [0, 0.5, 1].map((part) => [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(top * part), y2: y(top * part) }),
      s("text", { class: "tick-label", x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, format(top * part)),
    ]);
    const ends = [
      s("text", { class: "tick-label", x: LEFT, y: HEIGHT - 5 }, `−${ago(span)}`),
      s("text", { class: "tick-label", x: width - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, "now"),
    ];
    const lines = series.map((one, i) => [
      i === 0 && !one.limit ? s("path", { class: "area series-1", d: area(values[i], x, y, HEIGHT - BOTTOM) }) : null,
      s("path", { class: one.limit ? "line limit" : `line series-${i + 1}`, d: line(values[i], x, y) }),
    ]);
    const at = chosen === null ? null : Math.min(chosen, times.length - 1);
    const mark = at === null ? null : s(
      "line",
      { class: "cursor", x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM },
    );
    put(drawing, grid, ends, lines, mark);
    words(at);
  }

  function words(at) {
    const i = at ?? times.length - 1;
    put(when, at === null ? "" : moment(times[at]));
    const items = series.map((one, n) => {
      const shown = Number.isFinite(values[n][i]) ? format(values[n][i]) : "–";
      const swatch = h("i", { class: one.limit ? "swatch limit" : `swatch series-${n + 1}`, "aria-hidden": "true" });
      return h("li", {}, swatch, `${one.label} `, h("b", {}, shown));
    });
    put(legend, items);
    const told = series.map(
      (one, n) => `${one.label} ${Number.isFinite(values[n][i]) ? format(values[n][i]) : "unknown"}`,
    );
    drawing.setAttribute("aria-label", `${title}: ${told.join(", ")}`);
  }

  function look(at) {
    chosen = at === null ? null : Math.max(0, Math.min(times.length - 1, at));
    if (times.length) draw();
  }

  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    look(Math.round(part * (times.length - 1)));
  });
  drawing.addEventListener("pointerleave", () => look(null));
  drawing.addEventListener("blur", () => look(null));
  drawing.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    look((chosen ?? times.length - 1) + steps[event.key]);
  });
  new ResizeObserver(() => times.length && draw()).observe(element);

  /** `history`: the answer of /api/history. */
  function show(history) {
    times = history.at_ms;
    values = series.map((one) => (history.series[one.name] ?? []).map((value) => value ?? NaN));
    if (times.length >= 2) return draw();
    return put(drawing, s("text", { class: "tick-label", x: LEFT, y: HEIGHT / 2 }, "No samples yet."));
  }

  return { element, show };
}

/** Lines break where there is no value for a while. */
export function line(values, x, y) {
  let last = -Infinity;
  let path = "";
  values.forEach((value, i) => {
    if (!Number.isFinite(value)) return;
    path += `${i - last > GAP_MAX ? "M" : "L"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    last = i;
  });
  return path || "M0 0";
}

export function area(values, x, y, floor) {
  const there = values.map((value, i) => [value, i]).filter(([value]) => Number.isFinite(value));
  if (there.length < 2) return "M0 0";
  const path = there.map(([value, i]) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
  return `M${x(there[0][1]).toFixed(1)} ${floor}L${path}L${x(there.at(-1)[1]).toFixed(1)} ${floor}Z`;
}

/** The next round number above, so that the axis does not jump with every sample. */
export function nice(value, binary) {
  if (value <= 0) return 1;
  const base = binary ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 10 ** Math.floor(Math.log10(value));
  const steps = binary ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 4, 6, 8, 10];
  return base * (steps.find((step) => base * step >= value) ?? steps.at(-1));
}

function ago(ms) {
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
