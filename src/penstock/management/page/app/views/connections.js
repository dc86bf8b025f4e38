// Connections: all of them; one of them with its channels, and the button that closes it.

import { get, path, remove, tryGet } from "../parts/api.js";
import { confirmDialog } from "../parts/dialog.js";
import { button, h, renew } from "../parts/dom.js";
import { bytes, count, moment } from "../parts/format.js";
import { facts, flowState, pairs } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { go, to } from "../parts/router.js";
import { list, plainTable } from "../parts/table.js";
import { channelRow, CHANNEL_TITLES } from "./channels.js";

const clientName = (row) => row.user_provided_name || row.client_properties?.connection_name || "";

export function connections(place) {
  const table = list({
    place,
    label: "Connections",
    url: () => path("connections"),
    order: "name",
    key: (row) => row.name,
    empty: "Nobody is connected.",
    columns: [
      {
        title: "Name",
        sort: "name",
        cell: (row) => [
          h("a", { href: to("connections", row.name) }, row.name),
          h("small", { class: "by" }, ` ${clientName(row)}`),
        ],
      },
      { title: "State", sort: "state", cell: flowState },
      { title: "User", sort: "user", wide: true, cell: (row) => row.user },
      { title: "Vhost", sort: "vhost", wide: true, cell: (row) => row.vhost },
      { title: "Channels", sort: "channels", number: true, cell: (row) => count(row.channels) },
      {
        title: "From client",
        sort: "recv_oct_details.rate",
        number: true,
        wide: true,
        cell: (row) => octets(row.recv_oct_details),
      },
      {
        title: "To client",
        sort: "send_oct_details.rate",
        number: true,
        wide: true,
        cell: (row) => octets(row.send_oct_details),
      },
      { title: "Client", wide: true, cell: (row) => client(row) },
    ],
  });
  place.show("Connections", null, table.element);
}

const octets = (details) => (details ? `${bytes(details.rate)}/s` : "–");
const client = (row) => [
  row.client_properties?.product,
  row.client_properties?.version,
].filter(Boolean).join(" ") || "–";

export function connection(place) {
  const { name } = place.params;
  const about = h("section", { class: "panel" });
  const channels = h("section", { class: "panel" });
  const close = may.change() ? button("Close connection", () => ask(name), "danger") : null;
  place.show(`Connection ${name}`, close, about, channels);
  place.every(3, async (signal) => {
    const row = await get(path("connections", name), signal);
    const own = await tryGet(path("connections", name, "channels"), [], signal);
    renew(
      about,
      facts([
        ["State", flowState(row)],
        ["User", row.user],
        ["Vhost", row.vhost],
        ["Name given by the client", clientName(row)],
        ["Client", client(row)],
        ["Connected at", moment(row.connected_at)],
        ["From client", `${octets(row.recv_oct_details)}, ${bytes(row.recv_oct)} in all`],
        ["To client", `${octets(row.send_oct_details)}, ${bytes(row.send_oct)} in all`],
        ["Parked", row.parked_bytes === undefined ? null : bytes(row.parked_bytes)],
        ["Heartbeat", row.timeout ? `${row.timeout} s` : "none"],
        ["Largest frame", bytes(row.frame_max)],
        ["TLS", row.ssl ? `${row.ssl_protocol ?? "yes"} ${row.ssl_cipher ?? ""}` : "no"],
      ]),
      h("details", {}, h("summary", {}, "Client properties"), pairs(row.client_properties)),
    );
    renew(
      channels,
      h("h2", {}, "Channels"),
      plainTable("Channels", CHANNEL_TITLES, own.map(channelRow), "No channels."),
    );
  });
}

function ask(name) {
  confirmDialog({
    title: "Close connection",
    text: `${name} is closed; what it has not acked goes back to the queues. The client may connect again at once.`,
    action: "Close it",
    submit: async () => {
      await remove(path("connections", name));
      note(`Connection ${name} is closed.`);
      go("#/connections");
    },
  });
}
