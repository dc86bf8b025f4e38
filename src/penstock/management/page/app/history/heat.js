// Heat: who blocked whom, as a table with coloured cells: it is a picture, and it can be read out.

import { h } from "../parts/dom.js";
import { count, duration } from "../parts/format.js";

const LEVELS = 5;
const LABEL = "Who waited (rows) for whom (columns)";

export function heat({ upstream, downstream, cells }) {
  if (!cells.length) return h("p", { class: "muted" }, "No stage was blocked.");
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
    h("caption", { class: "unseen" }, LABEL),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, lines),
  );
  return h("div", { class: "table-scroll", role: "region", "aria-label": LABEL, tabindex: "0" }, table);
}

function cell(found, most, up, down) {
  if (!found) return h("td", { class: "none" }, "·");
  const [seconds, blocks] = found;
  const strength = Math.max(1, Math.round((seconds / most) * LEVELS));
  const title = `${up} waited for ${down}: ${duration(seconds)}, ${count(blocks)} blocks`;
  return h("td", { class: `level-${strength}`, title }, duration(seconds));
}
