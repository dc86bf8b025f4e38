// Vhost: the choice of one, for lists and for forms.

import { get } from "./api.js";
import { h } from "./dom.js";
import { choice } from "./form.js";
import { remember } from "./router.js";

let known = ["/"];

/** Asked for when a page opens; a form that opens later has them. */
export async function learn(signal) {
  known = (await get("/api/vhosts", signal)).map((vhost) => vhost.name);
  return known;
}

export function vhostField(value) {
  return choice("vhost", "Vhost", known, { value: value || (known.includes("/") ? "/" : known[0]) });
}

/** Beside a name, where there is no room for a column of vhosts. */
export function vhostBeside(row) {
  return row.vhost === "/" ? null : h("small", { class: "by narrow-only" }, ` in ${row.vhost}`);
}

/** Beside a list's filter: all vhosts or one; `changed` is called with the choice kept in the address. */
export function vhostChoice(place, changed) {
  const select = h("select", { "aria-label": "Vhost" }, h("option", { value: "" }, "All vhosts"));
  const chosen = { vhost: place.query.get("vhost") || undefined };
  select.addEventListener("change", () => {
    chosen.vhost = select.value || undefined;
    remember({ vhost: select.value });
    changed();
  });
  place.attempt(async (signal) => {
    const names = await learn(signal);
    select.append(...names.map((name) => h("option", { value: name, selected: name === chosen.vhost }, name)));
    select.hidden = names.length < 2 && !chosen.vhost;
  });
  return { select, chosen };
}
