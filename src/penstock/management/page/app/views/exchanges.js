// Exchanges: all of them, a new one; one of them with its bindings, publishing, deleting.

import { get, path, query, remove, send } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { button, h, renew } from "../parts/dom.js";
import { rate } from "../parts/format.js";
import * as form from "../parts/form.js";
import { badge, facts, features, pairs, rateOf } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { go, to } from "../parts/router.js";
import { list } from "../parts/table.js";
import { vhostBeside, vhostChoice, vhostField } from "../parts/vhost.js";
import { bindDialog, bindingTable } from "./bindings.js";
import { publishDialog } from "./messages.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash"];
export const shownName = (name) => name || "(default)";
export const pathName = (name) => name || "amq.default";

export function exchanges(place) {
  const vhost = vhostChoice(place, () => table.refresh(true));
  const table = list({
    place,
    label: "Exchanges",
    url: () => path("exchanges", vhost.chosen.vhost),
    order: "name",
    key: (row) => `${row.vhost}/${row.name}`,
    empty: "No exchanges.",
    tools: vhost.select,
    columns: [
      {
        title: "Name",
        sort: "name",
        cell: (row) => [
          h("a", { href: to("exchanges", row.vhost, pathName(row.name)) }, shownName(row.name)),
          vhostBeside(row),
        ],
      },
      { title: "Vhost", sort: "vhost", wide: true, cell: (row) => row.vhost },
      { title: "Type", sort: "type", cell: (row) => row.type },
      { title: "Features", wide: true, cell: features },
      {
        title: "In",
        sort: "message_stats.publish_in_details.rate",
        number: true,
        cell: (row) => rate(rateOf(row, "publish_in")),
      },
      {
        title: "Out",
        sort: "message_stats.publish_out_details.rate",
        number: true,
        cell: (row) => rate(rateOf(row, "publish_out")),
      },
    ],
  });
  const make = may.change() ? button("New exchange", () => create(table, vhost.chosen.vhost), "primary") : null;
  place.show("Exchanges", make, table.element);
}

function create(table, vhost) {
  formDialog({
    title: "New exchange",
    action: "Create",
    fields: [
      form.text("name", "Name", { required: true }),
      vhostField(vhost),
      form.choice("type", "Type", TYPES),
      form.choice("durable", "Durability", [["true", "Durable"], ["false", "Transient"]]),
      form.tick("auto_delete", "Deleted with its last binding"),
      form.tick("internal", "Internal: for bindings only"),
      form.more(
        "Arguments",
        form.text("alternate", "Alternate exchange", { hint: "gets what is not routed" }),
        form.json("arguments", "Arguments, as JSON"),
      ),
    ],
    submit: async (values) => {
      const { name, vhost: where, type, auto_delete, internal, alternate } = values;
      const args = alternate ? { ...values.arguments, "alternate-exchange": alternate } : values.arguments;
      const body = { type, auto_delete, internal, durable: values.durable === "true", arguments: args };
      await send("PUT", path("exchanges", where, name), body);
      note(`Exchange ${name} is there.`);
      table.refresh();
    },
  });
}

export function exchange(place) {
  const { vhost } = place.params;
  const inPath = place.params.name;
  const name = inPath === "amq.default" ? "" : inPath;
  const about = h("section", { class: "panel" });
  const outgoing = h("section", { class: "panel" });
  const incoming = h("section", { class: "panel" });
  const refresh = () => timer.now();
  const own = name !== "" && !name.startsWith("amq.");
  const actions = may.change()
    ? [
        button("Publish", () => publishDialog(vhost, inPath, undefined, refresh), "primary"),
        name ? button("Bind", () => bindDialog({ vhost, source: name, done: refresh })) : null,
        own ? button("Delete", () => askDelete(vhost, name), "danger") : null,
      ]
    : null;
  place.show(`Exchange ${shownName(name)}`, actions, about, name ? outgoing : null, name ? incoming : null);
  const timer = place.every(4, async (signal) => {
    const row = await get(path("exchanges", vhost, inPath), signal);
    renew(
      about,
      facts([
        ["Vhost", row.vhost],
        ["Type", badge(row.type, "accent")],
        ["Features", features(row)],
        ["Policy", row.policy],
        ["In", rate(rateOf(row, "publish_in"))],
        ["Out", rate(rateOf(row, "publish_out"))],
        ["Arguments", pairs(row.arguments)],
      ]),
    );
    if (!name) return renew(
      about,
      h("p", {}, "The default exchange: every queue is bound to it by its name, and nothing else can be."),
      ...about.childNodes,
    );
    const from = await get(path("exchanges", vhost, inPath, "bindings", "source"), signal);
    const into = await get(path("exchanges", vhost, inPath, "bindings", "destination"), signal);
    renew(outgoing, h("h2", {}, "Bindings from here"), bindingTable(from, refresh, "destination"));
    return renew(incoming, h("h2", {}, "Bindings to here"), bindingTable(into, refresh, "source"));
  });
}

function askDelete(vhost, name) {
  formDialog({
    title: `Delete exchange ${name}`,
    action: "Delete",
    danger: true,
    fields: [
      h("p", {}, "Its bindings go with it; publishers that name it get 404."),
      form.tick("unused", "Only if nothing is bound to it"),
    ],
    submit: async ({ unused }) => {
      await remove(path("exchanges", vhost, name) + query({ "if-unused": unused || "" }));
      note(`Exchange ${name} is deleted.`);
      go("#/exchanges");
    },
  });
}
