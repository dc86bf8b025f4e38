// Trend: a forecast as a chart: what was, the limit, and the straight line from the newest value towards it.

import { h, put, s } from "../parts/dom.js";
import { bytes, short } from "../parts/format.js";
import { area, line, nice } from "../parts/chart.js";
import { axis, timeTicks } from "./axis.js";
import { clock, foretold } from "./words.js";

const HEIGHT = 170;
const LEFT = 58;
const RIGHT = 10;
const TOP = 10;
const FLOOR = HEIGHT - 22;

export function trendChart(title) {
  const legend = h("ul", { class: "legend" });
  const drawing = s("svg", { class: "chart", height: HEIGHT, tabindex: "0", role: "img", "aria-label": title });
  const element = h("figure", { class: "panel chart-panel" }, h("figcaption", {}, h("h3", {}, title)), legend, drawing);
  let newest = null;
  let drawn = 0; // how wide

  function draw() {
    const { digest, one } = newest;
    const inBytes = one.unit === "bytes";
    const format = inBytes ? bytes : short;
    const width = Math.max(220, drawing.clientWidth || element.clientWidth - 32);
    drawn = width;
    const step = digest.step_s * 1000;
    const steps = Math.round((one.drawn_until_ms - digest.since_ms) / step);
    const time = axis({ since_ms: digest.since_ms, step_s: digest.step_s, steps, known_s: 0 }, LEFT, width - RIGHT);
    const trend = one.trend ?? [];
    const known = [...one.values, one.limit, ...trend.map(([, value]) => value)].filter(Number.isFinite);
    const top = nice(Math.max(0, ...known), inBytes);
    const y = (value) => FLOOR - (value / top) * (FLOOR - TOP);
    const x = (at) => time.x((at - digest.since_ms) / step);
    const grid = [0, 0.5, 1].map((part) => [
      s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(top * part), y2: y(top * part) }),
      s("text", { class: "tick-label", x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, format(top * part)),
    ]);
    const now = x(digest.until_ms);
    const values = one.values.map((value) => value ?? NaN);
    const [from, to] = trend;
    const hits = to && one.hits_at_ms !== null && to[0] >= one.hits_at_ms - 1;
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    put(
      drawing,
      grid,
      timeTicks(time, TOP, FLOOR),
      s("line", { class: "cursor", x1: now, x2: now, y1: TOP, y2: FLOOR }),
      s("path", { class: "area series-1", d: area(values, (i) => time.x(i + 0.5), y, FLOOR) }),
      s("path", { class: "line limit", d: `M${LEFT} ${y(one.limit ?? 0)}H${width - RIGHT}` }),
      s("path", { class: "line series-1", d: line(values, (i) => time.x(i + 0.5), y) }),
      from ? s("path", { class: "line trend", d: `M${x(from[0])} ${y(from[1])}L${x(to[0])} ${y(to[1])}` }) : null,
      hits ? s("circle", { class: "hit", cx: x(to[0]), cy: y(to[1]), r: 4 }) : null,
    );
    drawing.setAttribute("aria-label", `${title}: ${foretold(one).replaceAll("`", "")}`);
    const reached = one.hits_at_ms === null ? "not reached" : clock(one.hits_at_ms);
    put(
      legend,
      item("series-1", "Now", format(one.value)),
      item("limit", "Limit", format(one.limit)),
      from ? item("trend", "Trend", reached) : null,
    );
  }

  new ResizeObserver(() => newest && drawing.clientWidth !== drawn && draw()).observe(element);

  function show(given) {
    newest = given;
    draw();
  }

  return { element, show };
}

function item(kind, label, text) {
  return h("li", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), `${label} `, h("b", {}, text));
}
