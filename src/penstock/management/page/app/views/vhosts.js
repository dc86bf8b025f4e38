// Vhosts: worlds of their own for exchanges, queues and permissions.

import { get, path, remove, send } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { button, h, renew } from "../parts/dom.js";
import { count } from "../parts/format.js";
import * as form from "../parts/form.js";
import { note } from "../parts/notes.js";
import { plainTable } from "../parts/table.js";

const TITLES = [
  "Name",
  { title: "Description", wide: true },
  { title: "Messages", number: true },
  { title: "Ready", number: true, wide: true },
  { title: "Unacked", number: true, wide: true },
  "",
];

export function vhosts(place) {
  const panel = h("section", { class: "panel" });
  const make = button("New vhost", () => create(() => timer.now()), "primary");
  place.show("Vhosts", make, panel);
  const timer = place.every(5, async (signal) => {
    const rows = (await get("/api/vhosts", signal)).map((one) => [
      one.name,
      one.description || "–",
      count(one.messages),
      count(one.messages_ready),
      count(one.messages_unacknowledged),
      button("Delete", () => askDelete(one.name, () => timer.now()), "link", `Delete ${one.name}`),
    ]);
    renew(panel, plainTable("Vhosts", TITLES, rows));
  });
}

function create(done) {
  formDialog({
    title: "New vhost",
    action: "Create",
    fields: [form.text("name", "Name", { required: true }), form.text("description", "Description")],
    submit: async ({ name, description }) => {
      await send("PUT", path("vhosts", name), description ? { description } : {});
      note(`Vhost ${name} is there.`);
      done();
    },
  });
}

function askDelete(name, done) {
  formDialog({
    title: `Delete vhost ${name}`,
    action: "Delete",
    danger: true,
    fields: [
      h("p", {}, "All its queues, messages, exchanges and permissions go with it, for good."),
      form.text("typed", "Type its name", { required: true }),
    ],
    submit: async ({ typed }) => {
      if (typed !== name) throw new RangeError(`That is not ${name}.`);
      await remove(path("vhosts", name));
      note(`Vhost ${name} is deleted.`);
      done();
    },
  });
}
