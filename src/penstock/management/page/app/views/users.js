// Users: who there is, what they may on the page (tags) and in which vhosts (permissions).

import { get, path, remove, send, tryGet } from "../parts/api.js";
import { confirmDialog, formDialog } from "../parts/dialog.js";
import { button, h, renew } from "../parts/dom.js";
import * as form from "../parts/form.js";
import { badge, facts } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { go, to } from "../parts/router.js";
import { plainTable } from "../parts/table.js";
import { learn, vhostField } from "../parts/vhost.js";

const TAGS = [
  ["administrator", "administrator: everything"],
  ["policymaker", "policymaker: policies, and what management may"],
  ["monitoring", "monitoring: sees everything, changes nothing"],
  ["management", "management: own vhosts"],
];

const tagsOf = (one) => (Array.isArray(one.tags) ? one.tags : String(one.tags ?? "").split(",")).filter(Boolean);
const shownTags = (one) => tagsOf(one).map((tag) => [badge(tag, tag === "administrator" ? "accent" : "calm"), " "]);

export function users(place) {
  const panel = h("section", { class: "panel" });
  const make = button("New user", () => create(() => timer.now()), "primary");
  place.show("Users", make, panel);
  const timer = place.every(5, async (signal) => {
    const all = await get("/api/users", signal);
    const permissions = await get("/api/permissions", signal);
    const rows = all.map((one) => [
      h("a", { href: to("users", one.name) }, one.name),
      tagsOf(one).length ? shownTags(one) : "–",
      permissions.filter(
        (entry) => entry.user === one.name,
      ).map((entry) => entry.vhost).join(", ") || badge("none", "warn"),
      one.password_hash ? "password" : badge("none: certificate only"),
    ]);
    renew(panel, plainTable("Users", ["Name", "Tags", "Vhosts", { title: "Logs in with", wide: true }], rows));
  });
}

function tagFields(chosen) {
  const ticks = TAGS.map(([tag, label]) => form.tick("tags", label, { value: tag, checked: chosen.includes(tag) }));
  return h("fieldset", {}, h("legend", {}, "Tags"), ticks);
}

function create(done) {
  formDialog({
    title: "New user",
    action: "Create",
    fields: [
      form.text("name", "Name", { required: true }),
      form.password("password", "Password", { required: true }),
      tagFields([]),
    ],
    submit: async ({ name, password, tags }) => {
      await send("PUT", path("users", name), { password, tags: tags.join(",") });
      note(`User ${name} is there. It still needs permissions in a vhost.`);
      done();
      go(to("users", name));
    },
  });
}

export function user(place) {
  const { name } = place.params;
  const about = h("section", { class: "panel" });
  const permissions = h("section", { class: "panel" });
  const topics = h("section", { class: "panel" });
  const refresh = () => timer.now();
  let now = null;
  const actions = [
    button("Set permissions", () => allow(name, null, refresh), "primary"),
    button("Topic permissions", () => allowTopics(name, refresh)),
    button("Change password or tags", () => now && change(now, refresh)),
    name === may.name() ? null : button("Delete", () => askDelete(name), "danger"),
  ];
  place.show(`User ${name}`, actions, about, permissions, topics);
  place.attempt(learn);
  const timer = place.every(5, async (signal) => {
    now = await get(path("users", name), signal);
    const own = await get(path("users", name, "permissions"), signal);
    const byTopic = await tryGet(path("users", name, "topic-permissions"), [], signal);
    renew(
      about,
      facts(
        [
          ["Tags", tagsOf(now).length ? shownTags(now) : "none: no access to this page"],
          ["Password", now.password_hash ? "set" : "none"],
        ],
      ),
    );
    renew(permissions, h("h2", {}, "Permissions"), permissionTable(name, own, refresh));
    renew(topics, h("h2", {}, "Topic permissions"), topicTable(name, byTopic, refresh));
  });
}

const code = (text) => h("code", {}, text === "" ? "(nothing)" : text);

function permissionTable(name, own, done) {
  const rows = own.map((one) => [
    button(one.vhost, () => allow(name, one, done), "link"),
    code(one.configure),
    code(one.write),
    code(one.read),
    clearButton(`Clear permissions in ${one.vhost}`, path("permissions", one.vhost, name), done),
  ]);
  return plainTable(
    "Permissions",
    ["Vhost", "Configure", "Write", "Read", ""],
    rows,
    "None: this user can open no vhost.",
  );
}

function topicTable(name, found, done) {
  const rows = found.map((one) => [
    one.vhost,
    one.exchange,
    code(one.write),
    code(one.read),
    clearButton(`Clear topic permissions in ${one.vhost}`, path("topic-permissions", one.vhost, name), done),
  ]);
  return plainTable(
    "Topic permissions",
    ["Vhost", "Exchange", "Write", "Read", ""],
    rows,
    "None: every routing key is allowed.",
  );
}

function clearButton(label, url, done) {
  const ask = () =>
    confirmDialog({
      title: label,
      text: "Counts at once, for open connections too.",
      action: "Clear",
      submit: async () => {
        await remove(url);
        note("The permissions are gone.");
        done();
      },
    });
  return button("Clear", ask, "link", label);
}

function allow(name, one, done) {
  formDialog({
    title: `Permissions of ${name}`,
    action: "Set",
    fields: [
      one ? form.text("vhost", "Vhost", { value: one.vhost, readonly: true }) : vhostField(),
      form.text("configure", "Configure", { value: one?.configure ?? ".*", hint: "regular expressions on names" }),
      form.text("write", "Write", { value: one?.write ?? ".*" }),
      form.text("read", "Read", { value: one?.read ?? ".*" }),
    ],
    submit: async ({ vhost, configure, write, read }) => {
      await send("PUT", path("permissions", vhost, name), { configure, write, read });
      note(`${name} has permissions in ${vhost}.`);
      done();
    },
  });
}

function allowTopics(name, done) {
  formDialog({
    title: `Topic permissions of ${name}`,
    action: "Set",
    fields: [
      vhostField(),
      form.text("exchange", "Exchange", { value: "amq.topic", required: true }),
      form.text("write", "Write", { value: ".*", hint: "regular expressions on routing keys" }),
      form.text("read", "Read", { value: ".*" }),
    ],
    submit: async ({ vhost, exchange, write, read }) => {
      await send("PUT", path("topic-permissions", vhost, name), { exchange, write, read });
      note(`${name} has topic permissions in ${vhost}.`);
      done();
    },
  });
}

function change(one, done) {
  formDialog({
    title: `User ${one.name}`,
    action: "Change",
    fields: [form.password("password", "New password", { hint: "empty: it stays as it is" }), tagFields(tagsOf(one))],
    submit: async ({ password, tags }) => {
      const kept = { password_hash: one.password_hash, hashing_algorithm: one.hashing_algorithm };
      await send("PUT", path("users", one.name), { ...(password ? { password } : kept), tags: tags.join(",") });
      note(`User ${one.name} is changed.`);
      done();
    },
  });
}

function askDelete(name) {
  confirmDialog({
    title: `Delete user ${name}`,
    text: "Its permissions go with it, and its connections are closed.",
    action: "Delete",
    submit: async () => {
      await remove(path("users", name));
      note(`User ${name} is deleted.`);
      go("#/users");
    },
  });
}
