// Theme: the switch between light, dark, and what the system says (login/theme.js applies it at the start).

import { h } from "./dom.js";

const KEY = "penstock.theme";
const CHOICES = [
  ["system", "Auto"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function choose(chosen) {
  const root = document.documentElement;
  if (chosen === "system") delete root.dataset.theme;
  else root.dataset.theme = chosen;
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Storage is switched off: it holds until the page is closed.
  }
}

export function themeSwitch() {
  const chosen = document.documentElement.dataset.theme ?? "system";
  return h(
    "label",
    { class: "theme" },
    h("span", { class: "unseen" }, "Colours"),
    h(
      "select",
      { id: "theme", onchange: (event) => choose(event.target.value) },
      CHOICES.map(([value, label]) => h("option", { value, selected: value === chosen }, label)),
    ),
  );
}
