// Messages: publish one, and look at those that wait.

import { path, send } from "../parts/api.js";
import { formDialog, showDialog } from "../parts/dialog.js";
import { h } from "../parts/dom.js";
import { bytes, count } from "../parts/format.js";
import * as form from "../parts/form.js";
import { badge, facts, pairs } from "../parts/marks.js";
import { note } from "../parts/notes.js";

const TRUNCATE_BYTES = 50000; // of a body that is shown
const GET_MAX = 100;

const ACK_MODES = [
  ["ack_requeue_true", "Put back: they stay in the queue, marked as redelivered"],
  ["ack_requeue_false", "Take: they leave the queue"],
  ["reject_requeue_true", "Reject and put back"],
  ["reject_requeue_false", "Reject: dead-lettered, or gone"],
];

/** To an exchange with a key, or to a queue by the default exchange. `done` is called afterwards. */
export function publishDialog(vhost, exchange, queue, done) {
  formDialog({
    title: queue === undefined ? `Publish to ${exchange}` : `Publish to queue ${queue}`,
    action: "Publish",
    wide: true,
    fields: [
      queue === undefined ? form.text("routing_key", "Routing key") : null,
      form.choice("delivery_mode", "Delivery", [["2", "Persistent"], ["1", "Transient"]]),
      form.area("payload", "Body", { rows: 5 }),
      form.more(
        "Properties and headers",
        form.text("content_type", "Content type"),
        form.number("priority", "Priority", { max: "255" }),
        form.text("expiration", "Expiration", { hint: "milliseconds" }),
        form.text("correlation_id", "Correlation id"),
        form.text("reply_to", "Reply to"),
        form.text("message_id", "Message id"),
        form.text("type", "Type"),
        form.json("headers", "Headers, as JSON", { rows: 2 }),
      ),
      form.tick("base64", "The body is base64"),
    ],
    submit: async (values) => {
      const names = ["content_type", "priority", "expiration", "correlation_id", "reply_to", "message_id", "type"];
      const properties = { delivery_mode: Number(values.delivery_mode), ...form.given(values, names) };
      if (Object.keys(values.headers).length) properties.headers = values.headers;
      const answer = await send("POST", path("exchanges", vhost, exchange, "publish"), {
        properties,
        routing_key: queue ?? values.routing_key,
        payload: values.payload,
        payload_encoding: values.base64 ? "base64" : "string",
      });
      note(answer.routed ? "The message is published." : "The message is published, but no queue takes it.");
      done();
    },
  });
}

export function getDialog(vhost, queue, done) {
  formDialog({
    title: `Get messages of ${queue}`,
    action: "Get",
    fields: [
      form.choice("ackmode", "And then", ACK_MODES),
      form.number("count", "How many", { value: "1", min: "1", max: String(GET_MAX), required: true }),
    ],
    submit: async ({ ackmode, count: wanted }) => {
      const body = { ackmode, count: wanted, encoding: "auto", truncate: TRUNCATE_BYTES };
      const messages = await send("POST", path("queues", vhost, queue, "get"), body);
      done();
      if (!messages.length) return note(`Queue ${queue} is empty.`);
      return showDialog(
        `${count(messages.length)} ${messages.length === 1 ? "message" : "messages"} of queue ${queue}`,
        messages.map(message),
      );
    },
  });
}

function message(one) {
  const { headers, ...properties } = one.properties ?? {};
  return h(
    "article",
    { class: "message" },
    facts([
      ["Exchange", one.exchange || "(default)"],
      ["Routing key", h("code", {}, one.routing_key)],
      ["Size", bytes(one.payload_bytes)],
      ["Left in the queue", count(one.message_count)],
      ["Redelivered", one.redelivered ? badge("yes", "warn") : "no"],
      ["Properties", Object.keys(properties).length ? pairs(properties) : null],
      ["Headers", headers && Object.keys(headers).length ? pairs(headers) : null],
      ["Encoding", one.payload_encoding === "base64" ? "base64" : null],
    ]),
    h("pre", { tabindex: "0", "aria-label": "Body" }, one.payload),
  );
}
