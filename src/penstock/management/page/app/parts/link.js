// Link: whether the broker answers. While it does not, a line says so and asks again, whatever page is open;
// views go on by themselves, as each asks again in its own time (place.js).

import { h, put } from "./dom.js";

const AGAIN_MS = 1500;
let since = null;

export function lost() {
  if (since !== null) return;
  since = Date.now();
  document.documentElement.classList.add("is-lost");
  show();
  setTimeout(knock, AGAIN_MS);
}

export function found() {
  if (since === null) return;
  since = null;
  document.documentElement.classList.remove("is-lost");
  put(document.getElementById("lost"));
  document.dispatchEvent(new Event("penstock:found"));
}

function show() {
  const seconds = Math.round((Date.now() - since) / 1000);
  const age = h("span", { "aria-hidden": "true" }, seconds ? ` For ${seconds} s.` : "");
  put(
    document.getElementById("lost"),
    h("p", {}, h("strong", {}, "Connection lost."), " The broker does not answer; the page asks again.", age),
  );
}

async function knock() {
  if (since === null) return;
  try {
    await fetch("/health/live", { cache: "no-store" });
    found();
  } catch {
    show();
    setTimeout(knock, AGAIN_MS);
  }
}
