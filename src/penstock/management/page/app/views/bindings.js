// Bindings: a table of them, a new one, the end of one. For exchanges and queues alike.

import { path, remove, send } from "../parts/api.js";
import { confirmDialog, formDialog } from "../parts/dialog.js";
import { button, h } from "../parts/dom.js";
import * as form from "../parts/form.js";
import { pairs } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { to } from "../parts/router.js";
import { plainTable } from "../parts/table.js";

const KINDS = { queue: "q", exchange: "e" };

/** `side`: which end to show, "source" or "destination". */
export function bindingTable(bindings, done, side) {
  const rows = bindings.map((one) => [
    end(one, side),
    h("code", {}, one.routing_key),
    pairs(one.arguments),
    may.change() && one.source ? unbindButton(one, done) : null,
  ]);
  const wide = !bindings.some((one) => Object.keys(one.arguments ?? {}).length); // no room for a column of dashes
  return plainTable(
    "Bindings",
    [side === "source" ? "From" : "To", "Routing key", { title: "Arguments", wide }, ""],
    rows,
    "No bindings.",
  );
}

function end(one, side) {
  if (side === "source") {
    return h("a", { href: to("exchanges", one.vhost, one.source || "amq.default") }, one.source || "(default)");
  }
  const page = one.destination_type === "queue" ? "queues" : "exchanges";
  return [
    h("a", { href: to(page, one.vhost, one.destination) }, one.destination),
    h("small", { class: "by" }, ` ${one.destination_type}`),
  ];
}

function unbindButton(one, done) {
  const label = `Unbind ${one.destination} from ${one.source}, key ${one.routing_key}`;
  const ask = () =>
    confirmDialog({
      title: "Unbind",
      text: `${one.source} no longer sends messages with the key “${one.routing_key}” to ${one.destination}.`,
      action: "Unbind",
      submit: async () => {
        await remove(
          path(
            "bindings",
            one.vhost,
            "e",
            one.source,
            KINDS[one.destination_type],
            one.destination,
            one.properties_key,
          ),
        );
        note("The binding is gone.");
        done();
      },
    });
  return button("Unbind", ask, "link", label);
}

/** From an exchange (`source`) to anything, or from any exchange to a queue (`queue`). */
export function bindDialog({ vhost, source, queue, done }) {
  const ends = queue
    ? [form.text("source", "From exchange", { required: true })]
    : [
      form.choice("kind", "To", [["q", "Queue"], ["e", "Exchange"]]),
      form.text("destination", "Name", { required: true }),
    ];
  formDialog({
    title: queue ? `Bind queue ${queue}` : `Bind from ${source}`,
    action: "Bind",
    fields: [
      ...ends,
      form.text("routing_key", "Routing key"),
      form.json("arguments", "Arguments, as JSON", { rows: 2 }),
    ],
    submit: async (values) => {
      const from = source ?? values.source;
      const target = queue ? ["q", queue] : [values.kind, values.destination];
      const body = { routing_key: values.routing_key, arguments: values.arguments };
      await send("POST", path("bindings", vhost, "e", from, ...target), body);
      note(`${target[1]} is bound to ${from}.`);
      done();
    },
  });
}
