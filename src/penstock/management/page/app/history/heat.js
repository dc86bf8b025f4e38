// Heat: who blocked whom, as a table with coloured cells: it is a picture, and it can be read out.

import { h } from "../parts/dom.js";
import { count, duration } from "../parts/format.js";

const LEVELS = 5;

/** `part`: of the digest's contents. */
export function heat({ upstream, downstream, cells }, part) {
  if (!cells.length) return h("p", { class: "muted" }, part.nothing);
  const most = Math.max(...cells.map(([, , seconds]) => seconds), 0.001);
  const found = new Map(cells.map(([up, down, seconds, blocks]) => [`${up} ${down}`, [seconds, blocks]]));
  const head = [
    h("th", { scope: "col" }, "waited for →"),
    downstream.map((label) => h("th", { scope: "col" }, label)),
  ];
  const lines = upstream.map((label, i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, label),
      downstream.map((other, j) => cell(found.get(`${i} ${j}`), most, label, other)),
    ),
  );
  const table = h(
    "table",
    { class: "heat" },
    h("caption", { class: "unseen" }, part.about),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, lines),
  );
  return h("div", { class: "table-scroll", role: "region", "aria-label": part.about, tabindex: "0" }, table);
}

function cell(found, most, up, down) {
  if (!found) return h("td", { class: "none" }, "·");
  const [seconds, blocks] = found;
  const strength = Math.max(1, Math.round((seconds / most) * LEVELS));
  const title = `${up} waited for ${down}: ${duration(seconds)}, ${count(blocks)} blocks`;
  return h("td", { class: `level-${strength}`, title }, duration(seconds));
}
