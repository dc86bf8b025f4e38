// Policies: what counts for all queues or exchanges whose names match. Operator policies are for administrators.

import { get, path, remove, send } from "../parts/api.js";
import { confirmDialog, formDialog } from "../parts/dialog.js";
import { button, h, renew } from "../parts/dom.js";
import * as form from "../parts/form.js";
import { pairs } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { plainTable } from "../parts/table.js";
import { learn, vhostField } from "../parts/vhost.js";

const KEYS =
  "message-ttl, expires, max-length, max-length-bytes, overflow, dead-letter-exchange, dead-letter-routing-key, " +
  "delivery-limit, flow-stop-count, flow-resume-count, flow-stop-bytes, flow-resume-bytes, queue-mode, " +
  "alternate-exchange";
const TITLES = [
  "Name",
  { title: "Vhost", wide: true },
  "Pattern",
  { title: "Applies to", wide: true },
  { title: "Priority", number: true, wide: true },
  "Definition",
  "",
];

export function policies(place) {
  const kinds = [
    {
      route: "policies",
      title: "Policies",
      about: "Of those that match a name, the one with the highest priority counts, alone.",
      panel: h("section", { class: "panel" }),
    },
  ];
  if (may.administer()) {
    kinds.push(
      {
        route: "operator-policies",
        title: "Operator policies",
        about: "Merged into the policy that counts; of two numbers the smaller one wins.",
        panel: h("section", { class: "panel" }),
      },
    );
  }
  const buttons = kinds.map((kind, i) =>
    button(i ? "New operator policy" : "New policy", () => edit(kind, null, () => timer.now()), i ? null : "primary"),
  );
  place.show("Policies", buttons, kinds.map((kind) => kind.panel));
  place.attempt(learn);
  const timer = place.every(5, async (signal) => {
    for (const kind of kinds) {
      const found = await get(path(kind.route), signal);
      const rows = found.map((one) => row(kind, one, () => timer.now()));
      renew(
        kind.panel,
        h("h2", {}, kind.title),
        h("p", { class: "muted" }, kind.about),
        plainTable(kind.title, TITLES, rows),
      );
    }
  });
}

function row(kind, one, done) {
  return [
    button(one.name, () => edit(kind, one, done), "link"),
    one.vhost,
    h("code", {}, one.pattern),
    one["apply-to"],
    String(one.priority),
    pairs(one.definition),
    button("Delete", () => askDelete(kind, one, done), "link", `Delete ${one.name}`),
  ];
}

function edit(kind, one, done) {
  const operator = kind.route !== "policies";
  const kinds = operator ? ["queues", "classic_queues", "streams"] : [
    "all",
    "queues",
    "classic_queues",
    "streams",
    "exchanges",
  ];
  formDialog({
    title: one ? `Policy ${one.name}` : operator ? "New operator policy" : "New policy",
    action: "Apply",
    wide: true,
    fields: [
      form.text("name", "Name", { required: true, value: one?.name ?? "", readonly: Boolean(one) }),
      one ? form.text("vhost", "Vhost", { value: one.vhost, readonly: true }) : vhostField(),
      form.text(
        "pattern",
        "Pattern",
        { required: true, value: one?.pattern ?? "", hint: "a regular expression, as ^orders\\." },
      ),
      form.choice(
        "apply-to",
        "Applies to",
        kinds.includes(one?.["apply-to"]) || !one ? kinds : [...kinds, one["apply-to"]],
        { value: one?.["apply-to"] },
      ),
      form.number("priority", "Priority", { value: String(one?.priority ?? 0), min: null }),
      form.json(
        "definition",
        "Definition, as JSON",
        {
          rows: 5,
          value: one ? JSON.stringify(one.definition, null, 2) : '{"max-length": 10000}',
          hint: `Keys: ${KEYS}`,
        },
      ),
    ],
    submit: async (values) => {
      const { name, vhost, pattern, priority = 0, definition } = values;
      await send(
        "PUT",
        path(kind.route, vhost, name),
        { pattern, priority, definition, "apply-to": values["apply-to"] },
      );
      note(`Policy ${name} counts from now on.`);
      done();
    },
  });
}

function askDelete(kind, one, done) {
  confirmDialog({
    title: `Delete policy ${one.name}`,
    text: "Queues and exchanges that match it go back to what else counts for them, at once.",
    action: "Delete",
    submit: async () => {
      await remove(path(kind.route, one.vhost, one.name));
      note(`Policy ${one.name} is deleted.`);
      done();
    },
  });
}
