// Main: who is here, which pages there are for them, and the frame around the page that is open.

import { ApiError, Away, get, logout } from "./parts/api.js";
import { h, put } from "./parts/dom.js";
import * as may from "./parts/may.js";
import { start } from "./parts/router.js";
import { themeSwitch } from "./parts/theme.js";
import { channel, channels } from "./views/channels.js";
import { connection, connections } from "./views/connections.js";
import { exchange, exchanges } from "./views/exchanges.js";
import { flow } from "./views/flow.js";
import { history } from "./views/history.js";
import { overview } from "./views/overview.js";
import { policies } from "./views/policies.js";
import { queue } from "./views/queue.js";
import { queues, streams } from "./views/queues.js";
import { settings } from "./views/settings.js";
import { user, users } from "./views/users.js";
import { vhosts } from "./views/vhosts.js";

const always = () => true;

// First part of the address, its name, who sees it, and its views.
const PAGES = [
  ["", "Overview", always, [["", overview]]],
  ["flow", "Flow", may.monitor, [["flow", flow]]],
  ["history", "History", may.monitor, [["history", history]]],
  ["connections", "Connections", always, [["connections", connections], ["connections/:name", connection]]],
  ["channels", "Channels", always, [["channels", channels], ["channels/:name", channel]]],
  ["exchanges", "Exchanges", always, [["exchanges", exchanges], ["exchanges/:vhost/:name", exchange]]],
  ["queues", "Queues", always, [["queues", queues], ["queues/:vhost/:name", queue]]],
  ["streams", "Streams", always, [["streams", streams]]],
  ["policies", "Policies", may.makePolicies, [["policies", policies]]],
  ["users", "Users", may.administer, [["users", users], ["users/:name", user]]],
  ["vhosts", "Vhosts", may.administer, [["vhosts", vhosts]]],
  ["settings", "Settings", may.administer, [["settings", settings]]],
];
const KNOCK_MS = 1500;

function draw(pages) {
  const links = pages.map(([first, name]) => h("a", { href: `#/${first}`, "data-page": first }, name));
  put(document.getElementById("nav"), h("ul", {}, links.map((link) => h("li", {}, link))));
  put(
    document.getElementById("who"),
    themeSwitch(),
    h("span", { class: "me", title: may.shownTags() }, may.name()),
    h("button", { type: "button", class: "quiet", id: "logout", onclick: logout }, "Log out"),
  );
  const head = document.getElementById("head");
  const menu = document.getElementById("menu");
  const unfold = (yes) => {
    head.classList.toggle("is-open", yes);
    menu.setAttribute("aria-expanded", String(yes));
  };
  menu.addEventListener("click", () => unfold(!head.classList.contains("is-open")));
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !head.classList.contains("is-open")) return;
    unfold(false);
    menu.focus();
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the router's
    document.getElementById("main").focus();
  });
  document.addEventListener("penstock:opened", (event) => {
    unfold(false);
    for (const link of links) {
      if (link.dataset.page === event.detail) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  });
}

async function begin() {
  try {
    may.is(await get("/api/whoami"));
  } catch (error) {
    if (error instanceof ApiError) put(document.getElementById("main"), h("p", { role: "alert" }, error.message));
    else if (error instanceof Away) setTimeout(begin, KNOCK_MS);
    return;
  }
  const pages = PAGES.filter(([, , seen]) => seen());
  draw(pages);
  start(pages.flatMap(([, , , views]) => views));
}

begin();
