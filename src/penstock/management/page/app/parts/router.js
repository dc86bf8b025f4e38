// Router: the fragment says which view is open: #/queues/%2F/orders?sort=messages. It never reaches the broker.

import { Place } from "./place.js";

let place = null;
let routes = [];

export function parse(fragment) {
  const [before, after] = fragment.replace(/^#\/?/, "").split("?");
  const parts = before.split("/").filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(after ?? "") };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** to("queues", "/", "orders") -> #/queues/%2F/orders */
export function to(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

/** Keep this in the address, so that going back and reloading find it, without opening the view again. */
export function remember(values) {
  const { query } = parse(location.hash);
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const base = location.hash.split("?")[0] || "#/";
  history.replaceState(null, "", text ? `${base}?${text}` : base);
}

function match(pattern, parts) {
  const names = pattern.split("/").filter(Boolean);
  if (names.length !== parts.length) return null;
  const params = {};
  for (const [i, name] of names.entries()) {
    if (name.startsWith(":")) params[name.slice(1)] = parts[i];
    else if (name !== parts[i]) return null;
  }
  return params;
}

function open() {
  const { parts, query } = parse(location.hash);
  const main = document.getElementById("main");
  place?.leave();
  for (const [pattern, view] of routes) {
    const params = match(pattern, parts);
    if (params === null) continue;
    place = new Place(main, { params, query });
    view(place);
    document.dispatchEvent(new CustomEvent("penstock:opened", { detail: parts[0] ?? "" }));
    return;
  }
  location.replace("#/");
}

export function start(table) {
  routes = table;
  let first = true;
  const opened = () => {
    if (location.hash === "#main") return; // the skip link
    open();
    if (!first) document.getElementById("main").focus({ preventScroll: true });
    if (!first) scrollTo(0, 0);
    first = false;
  };
  addEventListener("hashchange", opened);
  opened();
}

/** Open a view from code. */
export function go(fragment) {
  if (location.hash === fragment) open();
  else location.hash = fragment;
}
