// Notes: short news at the edge of the page ("queue orders is deleted"), read out too, gone after a while.

import { h } from "./dom.js";

const STAY_MS = 5000;

export function note(text) {
  const line = h("p", { class: "note" }, text);
  document.getElementById("notes").append(line);
  setTimeout(() => line.remove(), STAY_MS);
}
