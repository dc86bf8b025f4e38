// Overview: is anything held back, how much goes through, and how near memory and disk are to their limits.

import { get, query, tryGet } from "../parts/api.js";
import { chart } from "../parts/chart.js";
import { h, renew } from "../parts/dom.js";
import { bytes, count, duration, rate, short } from "../parts/format.js";
import { badge, facts, tile, words } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { remember } from "../parts/router.js";
import { plainTable } from "../parts/table.js";

const RANGES = [
  [60, "1 min"],
  [600, "10 min"],
  [3600, "1 h"],
];
const LISTENER_TITLES = ["Protocol", "Address", "Port"];
const ms = (value) => `${short(value)} ms`;
const size = Object.assign((value) => bytes(value), { binary: true });

const CHARTS = [
  {
    title: "Messages per second",
    format: rate,
    series: [["publish", "Published"], ["deliver_get", "Delivered"], ["ack", "Acked"], ["confirm", "Confirmed"]],
  },
  {
    title: "Messages in queues",
    format: short,
    series: [["messages_ready", "Ready"], ["messages_unacknowledged", "Unacked"]],
  },
  {
    title: "Memory",
    note: "publishers wait above the mark",
    format: size,
    series: [["memory_used", "Used"], ["memory_limit", "Watermark", true]],
  },
  {
    title: "Disk",
    note: "publishers wait below the mark",
    format: size,
    series: [["disk_free", "Free"], ["disk_free_limit", "Low mark", true]],
  },
  { title: "Sync of the store", format: ms, series: [["sync_ms", "Time per sync"]] },
  { title: "Connections", format: short, series: [["connections", "Open"], ["blocked_connections", "Held back"]] },
];

export function overview(place) {
  const banner = h("div", { role: "status" });
  const tiles = h("dl", { class: "tiles" });
  const node = h("section", { class: "panel", "aria-label": "Node" });
  const charts = CHARTS.map(({ series, ...more }) =>
    chart({ ...more, series: series.map(([name, label, limit]) => ({ name, label, limit })) }),
  );
  let age = Number(place.query.get("age")) || 60;
  const buttons = RANGES.map(([seconds, label]) =>
    h(
      "button",
      { type: "button", "aria-pressed": String(seconds === age), onclick: (event) => choose(seconds, event.target) },
      label,
    ),
  );
  const range = h("div", { class: "segments", role: "group", "aria-label": "Range of the charts" }, buttons);
  const grid = h("div", { class: "columns" }, charts.map((one) => one.element));

  function choose(seconds, button) {
    age = seconds;
    remember({ age: seconds === 60 ? "" : seconds });
    for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
    pictures.now();
  }

  place.show("Overview", may.monitor() ? range : null, banner, tiles, may.monitor() ? grid : null, node);

  place.every(2, async (signal) => {
    const all = await get("/api/overview", signal);
    const flow = may.monitor() ? await tryGet("/api/flow", null, signal) : null;
    const alarms = await get("/api/alarms", signal);
    const nodes = may.monitor() ? await get("/api/nodes", signal) : [];
    renew(banner, verdictLine(flow, alarms));
    renew(tiles, numbers(all));
    renew(node, nodeFacts(all, nodes[0]));
  });
  const pictures = may.monitor()
    ? place.every(2, async (signal) => {
        const history = await get("/api/history" + query({ age }), signal);
        for (const one of charts) one.show(history);
      })
    : { now: () => undefined };
}

function verdictLine(flow, alarms) {
  if (alarms.length) {
    const told = alarms.map((alarm) => `${alarm.source}: ${alarm.reason}`).join("; ");
    return line("bad", h("strong", {}, "Alarm: publishers wait. "), told);
  }
  const verdicts = flow?.verdicts ?? [];
  if (verdicts.length) {
    const others = verdicts.length > 1 ? ` And ${verdicts.length - 1} more.` : "";
    return line("warn", h("strong", {}, "Held back: "), words(verdicts[0].sentence), others);
  }
  if (flow?.blocked) return line("warn", "Some stages are blocked for moments.");
  return flow ? line("good", "Nothing is held back.") : null;

  function line(kind, ...text) {
    const link = flow ? h("a", { href: "#/flow" }, "Flow") : null;
    return h("div", { class: `banner ${kind}` }, h("p", {}, text), link);
  }
}

function numbers(all) {
  const stats = all.message_stats ?? {};
  const queued = all.queue_totals ?? {};
  const objects = all.object_totals ?? {};
  const perSecond = (name) => rate(stats[`${name}_details`]?.rate);
  return [
    tile("Published", perSecond("publish"), `${short(stats.publish ?? 0)} in all`),
    tile("Delivered", perSecond("deliver_get"), `${short(stats.deliver_get ?? 0)} in all`),
    tile("Acked", perSecond("ack"), `${short(stats.ack ?? 0)} in all`),
    tile("Ready", short(queued.messages_ready ?? 0)),
    tile("Unacked", short(queued.messages_unacknowledged ?? 0)),
    tile("Connections", count(objects.connections), `${count(objects.channels)} channels`),
    tile("Queues", count(objects.queues), `${count(objects.exchanges)} exchanges`),
    tile("Consumers", count(objects.consumers)),
  ];
}

function nodeFacts(all, node) {
  const listeners = (all.listeners ?? []).map((one) => [one.protocol, one.ip_address ?? "", String(one.port)]);
  const lines = [
    ["Node", all.node],
    ["Version", `Penstock ${all.penstock_version ?? all.product_version ?? ""}`],
    ["As RabbitMQ", all.rabbitmq_version],
  ];
  if (node) {
    lines.push(
      ["Up for", duration(node.uptime / 1000)],
      [
        "Memory",
        [`${bytes(node.mem_used)} of ${bytes(node.mem_limit)} `, node.mem_alarm ? badge("alarm", "bad") : null],
      ],
      [
        "Disk free",
        [
          `${bytes(node.disk_free)}, low mark ${bytes(node.disk_free_limit)} `,
          node.disk_free_alarm ? badge("alarm", "bad") : null,
        ],
      ],
      ["Open files", `${count(node.fd_used)} of ${count(node.fd_total)}`],
      ["Written to disk", node.store ? bytes(node.store.written_bytes) : null],
      ["Syncs", node.store ? `${count(node.store.syncs)}, longest ${duration(node.store.sync_max_s)}` : null],
    );
  }
  return [
    h("h2", {}, "Node"),
    facts(lines),
    h("details", {}, h("summary", {}, "Listeners"), plainTable("Listeners", LISTENER_TITLES, listeners)),
  ];
}
