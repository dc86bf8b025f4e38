// Queues and streams: lists, and a new one.

import { path, send } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { button, h } from "../parts/dom.js";
import { bytes, count, duration } from "../parts/format.js";
import * as form from "../parts/form.js";
import { badge, features, flowState, shownRate } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { to } from "../parts/router.js";
import { list } from "../parts/table.js";
import { vhostBeside, vhostChoice, vhostField } from "../parts/vhost.js";

const link = (row) => [h("a", { href: to("queues", row.vhost, row.name) }, row.name), vhostBeside(row)];
const key = (row) => `${row.vhost}/${row.name}`;
const messageRate = (title, counter) => ({
  title,
  sort: `message_stats.${counter}_details.rate`,
  number: true,
  wide: true,
  cell: (row) => shownRate(row, counter),
});

function states(row) {
  const marks = row.saturation?.saturated ? [" ", badge("saturated", "warn")] : [];
  return [flowState(row), marks];
}

export function queues(place) {
  const vhost = vhostChoice(place, () => table.refresh(true));
  const table = list({
    place,
    label: "Queues",
    url: () => path("queues", vhost.chosen.vhost),
    order: "name",
    key,
    empty: "No queues yet.",
    tools: vhost.select,
    columns: [
      { title: "Name", sort: "name", cell: link },
      { title: "Vhost", sort: "vhost", wide: true, cell: (row) => row.vhost },
      {
        title: "Features",
        wide: true,
        cell: (row) => [row.type === "stream" ? [badge("stream", "accent"), " "] : null, features(row)],
      },
      { title: "State", sort: "state", cell: states },
      { title: "Ready", sort: "messages_ready", number: true, cell: (row) => count(row.messages_ready) },
      {
        title: "Unacked",
        sort: "messages_unacknowledged",
        number: true,
        wide: true,
        cell: (row) => count(row.messages_unacknowledged),
      },
      { title: "Total", sort: "messages", number: true, wide: true, cell: (row) => count(row.messages) },
      messageRate("In", "publish"),
      messageRate("Out", "deliver_get"),
      messageRate("Acked", "ack"),
      { title: "Consumers", sort: "consumers", number: true, wide: true, cell: (row) => count(row.consumers) },
    ],
  });
  const make = may.change() ? button("New queue", () => createQueue(table, vhost.chosen.vhost), "primary") : null;
  place.show("Queues", make, table.element);
}

export function streams(place) {
  const vhost = vhostChoice(place, () => table.refresh(true));
  const table = list({
    place,
    label: "Streams",
    url: () => path("queues", vhost.chosen.vhost),
    more: { type: "stream" },
    order: "name",
    key,
    empty: "No streams yet. A stream is a log: reading takes nothing away, and every message has an offset.",
    tools: vhost.select,
    columns: [
      { title: "Name", sort: "name", cell: link },
      { title: "Vhost", sort: "vhost", wide: true, cell: (row) => row.vhost },
      { title: "State", sort: "state", cell: states },
      { title: "Messages", sort: "messages", number: true, cell: (row) => count(row.messages) },
      { title: "Size", sort: "message_bytes", number: true, wide: true, cell: (row) => bytes(row.message_bytes) },
      { title: "Keeps", wide: true, cell: retention },
      messageRate("In", "publish"),
      messageRate("Out", "deliver_get"),
      { title: "Readers", sort: "consumers", number: true, cell: (row) => count(row.consumers) },
    ],
  });
  const make = may.change() ? button("New stream", () => createStream(table, vhost.chosen.vhost), "primary") : null;
  place.show("Streams", make, table.element);
}

export function retention(row) {
  const args = row.arguments ?? {};
  const most = args["x-max-length-bytes"] === undefined ? null : bytes(args["x-max-length-bytes"]);
  return [most, age(args["x-max-age"])].filter(Boolean).join(", ") || "everything";
}

/** As it was asked for; only seconds are put in words. */
function age(text) {
  const seconds = /^(\d+)s$/.exec(text ?? "");
  return seconds ? duration(Number(seconds[1])) : text;
}

const QUEUE_NUMBERS = [
  ["x-message-ttl", "Messages live", "milliseconds"],
  ["x-expires", "Deleted after", "milliseconds without use"],
  ["x-max-length", "At most, messages", ""],
  ["x-max-length-bytes", "At most, bytes", ""],
  ["x-max-priority", "Priorities up to", "1 to 255; few are cheaper"],
  ["x-flow-stop-count", "Saturated above", "messages: from there on confirms are held"],
  ["x-flow-resume-count", "Released below", "messages"],
];
const OVERFLOW = [["", "As the policy says"], "drop-head", "reject-publish", "reject-publish-dlx", "block-publish"];
const QUEUE_TEXTS = ["x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key"];

function createQueue(table, vhost) {
  formDialog({
    title: "New queue",
    action: "Create",
    wide: true,
    fields: [
      form.text("name", "Name", { required: true }),
      vhostField(vhost),
      form.choice("durable", "Durability", [["true", "Durable"], ["false", "Transient"]]),
      form.tick("auto_delete", "Deleted with its last consumer"),
      form.more(
        "Limits, dead letters, watermarks",
        QUEUE_NUMBERS.map(([name, label, hint]) => form.number(name, label, { hint })),
        form.choice("x-overflow", "At its maximum", OVERFLOW),
        form.text("x-dead-letter-exchange", "Dead letters to exchange"),
        form.text("x-dead-letter-routing-key", "Dead letters with key"),
        form.tick("x-single-active-consumer", "One consumer at a time"),
        form.json("arguments", "Further arguments, as JSON", { rows: 2 }),
      ),
    ],
    submit: async (values) => {
      const names = [...QUEUE_NUMBERS.map(([name]) => name), ...QUEUE_TEXTS, "x-single-active-consumer"];
      const args = { ...values.arguments, ...form.given(values, names) };
      const body = { durable: values.durable === "true", auto_delete: values.auto_delete, arguments: args };
      await send("PUT", path("queues", values.vhost, values.name), body);
      note(`Queue ${values.name} is there.`);
      table.refresh();
    },
  });
}

function createStream(table, vhost) {
  formDialog({
    title: "New stream",
    action: "Create",
    fields: [
      form.text("name", "Name", { required: true }),
      vhostField(vhost),
      form.number("x-max-length-bytes", "Keeps at most, bytes"),
      form.text("x-max-age", "Keeps at most, age", { hint: "as 7D, 12h, 30m" }),
      form.number("x-stream-max-segment-size-bytes", "Segment size, bytes", { hint: "what is removed at once" }),
    ],
    submit: async (values) => {
      const names = ["x-max-length-bytes", "x-max-age", "x-stream-max-segment-size-bytes"];
      const args = { "x-queue-type": "stream", ...form.given(values, names) };
      await send(
        "PUT",
        path("queues", values.vhost, values.name),
        { durable: true, auto_delete: false, arguments: args },
      );
      note(`Stream ${values.name} is there.`);
      table.refresh();
    },
  });
}
