// Channels: all of them, and one of them.

import { get, path } from "../parts/api.js";
import { h, renew } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { badge, facts, flowState, shownRate } from "../parts/marks.js";
import { to } from "../parts/router.js";
import { list, plainTable } from "../parts/table.js";

const mode = (row) => [
  row.confirm ? badge("confirms", "accent") : null,
  row.transactional ? badge("transactions", "accent") : null,
];
const prefetch = (row) => row.prefetch_count || null;
const link = (row) => h("a", { href: to("channels", row.name) }, row.name);

// For the table of a connection's channels too.
export const CHANNEL_TITLES = [
  "Channel",
  "State",
  { title: "Mode", wide: true },
  { title: "Consumers", number: true, wide: true },
  { title: "Unacked", number: true, wide: true },
  { title: "Unconfirmed", number: true, wide: true },
  { title: "Published", number: true },
];

export function channelRow(row) {
  return [
    link(row),
    flowState(row),
    mode(row),
    count(row.consumer_count),
    count(row.messages_unacknowledged),
    count(row.messages_unconfirmed),
    shownRate(row, "publish"),
  ];
}

export function channels(place) {
  const table = list({
    place,
    label: "Channels",
    url: () => path("channels"),
    order: "name",
    key: (row) => row.name,
    empty: "No channel is open.",
    columns: [
      { title: "Channel", sort: "name", cell: link },
      { title: "State", sort: "state", cell: flowState },
      { title: "User", sort: "user", wide: true, cell: (row) => row.user },
      { title: "Vhost", sort: "vhost", wide: true, cell: (row) => row.vhost },
      { title: "Mode", wide: true, cell: mode },
      { title: "Prefetch", sort: "prefetch_count", number: true, wide: true, cell: prefetch },
      {
        title: "Unacked",
        sort: "messages_unacknowledged",
        number: true,
        wide: true,
        cell: (row) => count(row.messages_unacknowledged),
      },
      {
        title: "Unconfirmed",
        sort: "messages_unconfirmed",
        number: true,
        wide: true,
        cell: (row) => count(row.messages_unconfirmed),
      },
      {
        title: "Published",
        sort: "message_stats.publish_details.rate",
        number: true,
        cell: (row) => shownRate(row, "publish"),
      },
      {
        title: "Delivered",
        sort: "message_stats.deliver_get_details.rate",
        number: true,
        wide: true,
        cell: (row) => shownRate(row, "deliver_get"),
      },
      {
        title: "Acked",
        sort: "message_stats.ack_details.rate",
        number: true,
        wide: true,
        cell: (row) => shownRate(row, "ack"),
      },
    ],
  });
  place.show("Channels", null, table.element);
}

export function channel(place) {
  const { name } = place.params;
  const about = h("section", { class: "panel" });
  const consumers = h("section", { class: "panel" });
  place.show(`Channel ${name}`, null, about, consumers);
  place.every(3, async (signal) => {
    const row = await get(path("channels", name), signal);
    const own = row.connection_details?.name;
    renew(
      about,
      facts([
        ["State", flowState(row)],
        ["Connection", own ? h("a", { href: to("connections", own) }, own) : null],
        ["User", row.user],
        ["Vhost", row.vhost],
        ["Mode", row.confirm || row.transactional ? mode(row) : "plain"],
        ["Prefetch", row.prefetch_count || "unlimited"],
        ["Unacked", count(row.messages_unacknowledged)],
        ["Unconfirmed", count(row.messages_unconfirmed)],
        ["Not committed", row.transactional ? count(row.messages_uncommitted) : null],
        ["Credit to its connection", row.credit === undefined ? null : count(row.credit)],
        ["Published", shownRate(row, "publish")],
        ["Confirmed", shownRate(row, "confirm")],
        ["Delivered", shownRate(row, "deliver_get")],
        ["Acked", shownRate(row, "ack")],
      ]),
    );
    const rows = (row.consumer_details ?? []).map((one) => [
      h("a", { href: to("queues", one.queue.vhost, one.queue.name) }, one.queue.name),
      one.consumer_tag,
      one.ack_required ? "yes" : "no",
      one.prefetch_count || "–",
    ]);
    renew(
      consumers,
      h("h2", {}, "Consumers"),
      plainTable("Consumers", ["Queue", "Tag", "Acks", "Prefetch"], rows, "No consumers."),
    );
  });
}
