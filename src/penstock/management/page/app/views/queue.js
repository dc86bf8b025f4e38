// Queue: one queue or stream, its consumers and bindings, and what can be done with it.

import { get, path, query, remove, tryGet } from "../parts/api.js";
import { confirmDialog, formDialog } from "../parts/dialog.js";
import { button, h, renew } from "../parts/dom.js";
import { bytes, count, duration, percent } from "../parts/format.js";
import * as form from "../parts/form.js";
import { badge, facts, features, flowState, pairs, shownRate, tile } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { go, to } from "../parts/router.js";
import { plainTable } from "../parts/table.js";
import { bindDialog, bindingTable } from "./bindings.js";
import { getDialog, publishDialog } from "./messages.js";
import { retention } from "./queues.js";

/** The broker's stream of events: clients read it, and nobody else writes to it or deletes it. */
const isOwn = (row) => row.vhost === "/" && row.name === "penstock.events";

export function queue(place) {
  const { vhost, name } = place.params;
  const tiles = h("dl", { class: "tiles" });
  const about = h("section", { class: "panel" });
  const consumers = h("section", { class: "panel" });
  const bindings = h("section", { class: "panel" });
  const actions = h("div", { class: "actions" });
  const refresh = () => timer.now();
  place.show(`Queue ${name}`, actions, tiles, about, consumers, bindings);

  const timer = place.every(2, async (signal) => {
    const row = await get(path("queues", vhost, name), signal);
    const bound = await tryGet(path("queues", vhost, name, "bindings"), [], signal);
    const isStream = row.type === "stream";
    if (!actions.firstChild && may.change() && !isOwn(row)) actions.append(...buttons(vhost, name, isStream, refresh));
    renew(tiles, numbers(row, isStream));
    renew(about, description(row, isStream));
    renew(consumers, h("h2", {}, isStream ? "Readers" : "Consumers"), consumerTable(row));
    renew(bindings, h("h2", {}, "Bindings"), bindingTable(bound, refresh, "source"));
  });
}

function buttons(vhost, name, isStream, refresh) {
  const common = [
    button("Publish", () => publishDialog(vhost, "amq.default", name, refresh), "primary"),
    button("Bind", () => bindDialog({ vhost, queue: name, done: refresh })),
  ];
  const taking = [
    button("Get", () => getDialog(vhost, name, refresh)),
    button("Purge", () => askPurge(vhost, name, refresh), "danger"),
  ];
  return [...common, ...(isStream ? [] : taking), button("Delete", () => askDelete(vhost, name, isStream), "danger")];
}

function numbers(row, isStream) {
  const shown = [
    tile(
      isStream ? "Messages" : "Ready",
      count(isStream ? row.messages : row.messages_ready),
      bytes(row.message_bytes ?? row.message_bytes_ready),
    ),
    isStream ? null : tile("Unacked", count(row.messages_unacknowledged)),
    isStream ? null : tile("On disk only", count(row.messages_paged_out)),
    tile("In", shownRate(row, "publish")),
    tile("Out", shownRate(row, "deliver_get")),
    isStream ? null : tile("Acked", shownRate(row, "ack")),
    tile(isStream ? "Readers" : "Consumers", count(row.consumers)),
  ];
  return shown.filter(Boolean);
}

function description(row, isStream) {
  const marks = row.saturation;
  return facts([
    ["State", flowState(row)],
    ["Vhost", row.vhost],
    ["Type", row.type],
    ["Features", features(row)],
    ["Policy", row.policy],
    ["Operator policy", row.operator_policy],
    [
      "Policy in force",
      row.effective_policy_definition && Object.keys(
        row.effective_policy_definition,
      ).length ? pairs(row.effective_policy_definition) : null,
    ],
    ["Keeps", isStream ? retention(row) : null],
    ["Offsets", row.stream ? `${count(row.stream.first_offset)} up to ${count(row.stream.next_offset)}` : null],
    ["On disk", row.stream ? `${bytes(row.stream.bytes)} in ${count(row.stream.segments)} segments` : null],
    ["Written by", isOwn(row) ? "the broker alone: its events" : null],
    ["Watermarks", marks ? saturation(marks) : null],
    [
      "Consumers use",
      row.consumers ? percent(row.consumer_utilisation) : null,
    ],
    ["Owner", row.owner_pid_details?.name],
    ["Arguments", pairs(row.arguments)],
  ]);
}

function saturation(marks) {
  if (!marks.saturated) return `released; saturated ${count(marks.times)} times`;
  return [badge("saturated", "warn"), ` for ${duration(marks.saturated_for_s)}; ${count(marks.held)} confirms held`];
}

function channelOf(consumer) {
  const name = consumer.channel_details?.name;
  return name ? h("a", { href: to("channels", name) }, name) : "–";
}

function consumerTable(row) {
  const rows = (row.consumer_details ?? []).map((one) => [
    channelOf(one),
    one.consumer_tag,
    one.ack_required ? "yes" : "no",
    one.prefetch_count || "–",
    one.active === false ? badge("waits its turn") : badge("active", "good"),
  ]);
  return plainTable("Consumers", ["Channel", "Tag", "Acks", "Prefetch", "State"], rows, "No consumers.");
}

function askPurge(vhost, name, done) {
  confirmDialog({
    title: `Purge queue ${name}`,
    text: "All messages that wait are removed, for good. Those that consumers have stay with them.",
    action: "Purge",
    submit: async () => {
      await remove(path("queues", vhost, name, "contents"));
      note(`Queue ${name} is purged.`);
      done();
    },
  });
}

function askDelete(vhost, name, isStream) {
  formDialog({
    title: `Delete ${isStream ? "stream" : "queue"} ${name}`,
    action: "Delete",
    danger: true,
    fields: [
      h("p", {}, "Its messages and bindings go with it, for good."),
      isStream ? null : form.tick("empty", "Only if it is empty"),
      form.tick("unused", "Only if it has no consumers"),
    ],
    submit: async ({ empty, unused }) => {
      await remove(path("queues", vhost, name) + query({ "if-empty": empty || "", "if-unused": unused || "" }));
      note(`${isStream ? "Stream" : "Queue"} ${name} is deleted.`);
      go(isStream ? "#/streams" : "#/queues");
    },
  });
}
