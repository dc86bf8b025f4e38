// Settings: every setting with its reason. Those that can change while the broker runs change here; alarms are above.

import { get, path, send } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { button, h, put, renew } from "../parts/dom.js";
import * as form from "../parts/form.js";
import { badge, words } from "../parts/marks.js";
import { note } from "../parts/notes.js";
import { plainTable } from "../parts/table.js";

const SECTIONS = {
  credit: "Credit: what each hop may have under way, initial and granted again after, in messages and bytes",
  alarms: "Alarms: when publishers wait",
  faults: "Faults: slow a stage down on purpose, for rehearsals",
  store: "Store",
  limits: "Limits",
};

// The chain's order, and in words what the short reasons of the list leave to those who read it as a whole.
const CHAIN = {
  "credit.reader_channel": "From a connection to each of its channels, in messages. `0,0` switches it off.",
  "credit.reader_channel_bytes": "The same in bytes; only large messages notice it.",
  "credit.channel_queue": "From a channel to each queue it publishes to, in messages.",
  "credit.channel_queue_bytes": "The same in bytes.",
  "credit.queue_store": "From a queue to the store, for every persistent message.",
  "credit.queue_store_bytes": "The same in bytes.",
};
const placeOf = (one) => Object.keys(CHAIN).indexOf(one.name);

export function settings(place) {
  const alarms = h("section", { class: "panel", "aria-label": "Alarms" });
  const body = h("div");
  const actions = [
    h("a", { class: "button", href: "/api/definitions", download: "definitions.json" }, "Export definitions"),
    button("Import definitions", importDialog),
  ];
  place.show(
    "Settings",
    actions,
    alarms,
    h(
      "p",
      { class: "muted" },
      "A change counts at once and until the broker stops; files and environment are not touched.",
    ),
    body,
  );
  place.every(3, async (signal) => {
    const on = await get("/api/alarms", signal);
    const lines = on.map((alarm) => h("li", {}, badge(alarm.source, "bad"), ` ${alarm.reason}`));
    renew(alarms, h("h2", {}, "Alarms"), lines.length ? h("ul", {}, lines) : h("p", {}, "No alarm is on."));
  });
  const rows = new Map();
  place.every(5, async (signal) => {
    const all = await get("/api/settings", signal);
    if (!rows.size) draw(all, body, rows);
    for (const one of all) rows.get(one.name)?.(one);
  });
}

/** Vhosts, users, permissions, exchanges, queues, bindings, policies: RabbitMQ's JSON, out and in. */
function importDialog() {
  formDialog({
    title: "Import definitions",
    action: "Import",
    fields: [
      h(
        "p",
        {},
        "What is in the file is made or changed; nothing is deleted. It is checked as a whole before anything is done.",
      ),
      form.file("file", "Definitions, as JSON", { accept: ".json,application/json", required: true }),
    ],
    submit: async ({ file }) => {
      const answer = await send("POST", path("definitions"), parsed(await file.text()));
      note(answer?.summary ?? "The definitions are loaded.");
    },
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new RangeError(`The file is no JSON: ${error.message}`);
  }
}

function draw(all, body, rows) {
  const running = all.filter((one) => one.run_time);
  const names = [...new Set(running.map(sectionOf))];
  const known = Object.keys(SECTIONS);
  names.sort((a, b) => (known.indexOf(a) + 1 || 99) - (known.indexOf(b) + 1 || 99));
  const sections = names.map((name) => {
    const inOrder = running.filter((one) => sectionOf(one) === name).sort((a, b) => placeOf(a) - placeOf(b));
    const own = inOrder.map((one) => {
      const made = settingRow(one);
      rows.set(one.name, made.update);
      return made.element;
    });
    return h("section", { class: "panel settings" }, h("h2", {}, SECTIONS[name] ?? name), own);
  });
  const fixed = all.filter((one) => !one.run_time);
  const lines = fixed.map(
    (one) => [h("code", {}, one.name), h("code", {}, one.value === "" ? "–" : String(one.value)), words(one.reason)],
  );
  const rest = h(
    "details",
    {},
    h("summary", {}, `${fixed.length} settings are read at the start only`),
    plainTable("Settings read at the start", ["Setting", "Value", "Reason"], lines),
  );
  put(body, sections, h("section", { class: "panel" }, rest));
}

const sectionOf = (one) => one.name.split(".")[0];

/** One setting: its input where it can change. What a person types is not overwritten by the next look. */
export function settingRow(one, more = {}) {
  const id = `setting-${one.name}${more.suffix ?? ""}`;
  const input = h("input", { id, value: one.value, autocomplete: "off", spellcheck: "false", });
  const apply = h("button", { type: "submit", disabled: true }, "Apply");
  const trouble = h("p", { class: "trouble", role: "alert" });
  const original = h("span", { class: "muted" });
  let inForce = String(one.value);
  const typed = () => {
    apply.disabled = input.value === inForce;
  };
  const submit = async (event) => {
    event.preventDefault();
    put(trouble);
    try {
      await send("PUT", path("settings", one.name), { value: input.value });
      inForce = input.value;
      note(`${one.name} is ${input.value}.`);
      more.done?.();
    } catch (error) {
      put(trouble, error.message);
      input.focus();
    }
    typed();
  };
  input.addEventListener("input", typed);
  const element = h(
    "form",
    { class: "setting", onsubmit: submit },
    h("label", { for: id }, h("code", {}, one.name)),
    h("div", { class: "value" }, input, apply),
    h("p", { class: "reason" }, words(more.advice ?? CHAIN[one.name] ?? one.reason), " ", original),
    trouble,
  );
  function update(now) {
    if (input.value === inForce) input.value = now.value;
    inForce = String(now.value);
    typed();
    put(original, String(now.value) !== String(now.default) ? `Default: ${now.default || "none"}.` : "");
  }
  update(one);
  return { element, update };
}
