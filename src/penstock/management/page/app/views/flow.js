// Flow: what blocks what, live. The verdicts in words, the chain as a picture, and beside it whatever is chosen in it.

import { get, tryGet } from "../parts/api.js";
import { h, put, renew } from "../parts/dom.js";
import { drawing } from "../flow/drawing.js";
import { model } from "../flow/model.js";
import { panel } from "../flow/panel.js";
import { byName, heldOnly } from "../flow/sift.js";
import { earlier, verdictList } from "../flow/verdicts.js";
import * as may from "../parts/may.js";

const AGES = [
  ["age-0", "blocked for moments"],
  ["age-1", "over 3 s"],
  ["age-2", "over 15 s"],
  ["age-3", "over a minute"],
];

const KEPT_MAX = 5;

export function flow(place) {
  const only = h("input", { type: "checkbox", id: "only-held", onchange: () => redraw() });
  const name = h("input", {
    type: "search",
    placeholder: "Filter by name",
    "aria-label": "Filter stages by name",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => redraw(),
  });
  const beside = [name, h("label", { class: "tick", for: "only-held" }, only, " Only what is held back")];
  const verdicts = verdictList(choose);
  const picture = drawing(choose);
  const hidden = h("p", { class: "muted" });
  const side = panel({ close, changed: () => now.now() });
  const stage = h("div", { class: "flow-stage" }, picture.element);
  const ground = h("div", { class: "panel flow-ground" }, stage, hidden, legend());
  const body = h("div", { class: "flow-body" }, ground, side.element);
  const past = h("div");
  place.show("Flow", beside, verdicts.element, body, past);

  const kept = []; // the last snapshots: rates over some seconds are calm
  let latest = null; // the snapshot, and what was made of it
  let shown = null;
  let history = null;
  let chosen = null;
  let opener = null;
  const settings = new Map();

  function choose(kind, key) {
    opener = document.activeElement;
    chosen = { kind, key };
    body.classList.add("has-panel");
    redraw();
    side.focus();
  }

  function close() {
    chosen = null;
    body.classList.remove("has-panel");
    redraw();
    if (opener?.isConnected) opener.focus();
  }

  function redraw() {
    if (!shown) return;
    verdicts.show(shown.verdicts);
    side.show(chosen, shown, settings, history);
    const held = only.checked ? heldOnly(shown) : shown;
    const drawn = name.value.trim() ? byName(held, name.value.trim()) : held;
    const left = picture.show(drawn, Math.max(300, stage.clientWidth), chosen);
    const unseen = left + (latest.left_out ?? 0);
    const isQuiet = !shown.nodes.some((node) => node.kind === "connection");
    const nothing = isQuiet ? "Nobody has published within the last minute." : "";
    put(hidden, unseen ? `${unseen} more stages are not drawn; those that are held back come first.` : nothing);
  }

  const now = place.every(1, async (signal) => {
    const answer = await get("/api/flow", signal);
    shown = model(answer, kept[0] ?? null);
    kept.push(answer);
    if (kept.length > KEPT_MAX) kept.shift();
    latest = answer;
    for (const [name, value] of Object.entries(answer.settings)) {
      if (settings.has(name)) settings.get(name).value = value; // in force now, whoever changed it
    }
    redraw();
  });
  place.every(2, async (signal) => {
    history = await tryGet("/api/flow/history?age=60", null, signal);
    renew(past, earlier(history?.verdicts ?? []));
  });
  place.every(10, async (signal) => {
    if (!may.administer()) return;
    for (const one of await get("/api/settings", signal)) settings.set(one.name, one);
  });
  const escape = (event) => {
    if (event.key === "Escape" && chosen && !document.querySelector("dialog[open]")) close();
  };
  document.addEventListener("keydown", escape, { signal: place.signal });
  const watch = new ResizeObserver(() => redraw());
  watch.observe(stage);
  place.signal.addEventListener("abort", () => watch.disconnect());
}

function legend() {
  const items = [["is-flowing", "flows"], ["is-idle", "idle"], ...AGES];
  const shown = items.map(
    ([kind, label]) => h("li", {}, h("i", { class: `key ${kind}`, "aria-hidden": "true" }), label),
  );
  const credit = h("li", {}, "On an edge: credit left / initial. A thick edge has little left.");
  return h("ul", { class: "flow-legend", "aria-label": "Legend" }, shown, credit);
}
