// Knobs: what a verdict advises, with the input that does it: a setting, or a policy for one queue.
// A policy counts alone, so the one made here takes along what counts for the queue now.

import { get, path, send, tryGet } from "../parts/api.js";
import { h, put } from "../parts/dom.js";
import { words } from "../parts/marks.js";
import * as may from "../parts/may.js";
import { note } from "../parts/notes.js";
import { settingRow } from "../views/settings.js";

const sentence = (text) => text && text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** `knobs` of a verdict, as elements. `done` is called after a change; `update` brings the inputs up to date. */
export function knobForms(knobs, settings, done) {
  const rows = new Map();
  const elements = knobs.map((knob) => {
    if (knob.policy && may.makePolicies()) return policyForm(knob, done);
    const setting = settings.get(knob.setting);
    if (setting && may.administer()) {
      rows.set(knob.setting, settingRow(setting, { advice: sentence(knob.advice), suffix: "-knob", done }));
      return rows.get(knob.setting).element;
    }
    const value = knob.value === null || knob.value === undefined || knob.value === "" ? "" : `: ${knob.value}`;
    return h(
      "div",
      { class: "setting advice" },
      h("code", {}, `${knob.setting}${value}`),
      h("p", { class: "reason" }, words(sentence(knob.advice))),
    );
  });
  const update = () => rows.forEach((row, name) => row.update(settings.get(name)));
  return { elements, update };
}

function policyForm(knob, done) {
  const { vhost, queue, key } = knob.policy;
  const id = `policy-${key}`;
  const input = h("input", { id, type: "number", min: "0", step: "1", required: true, value: knob.value ?? "" });
  const trouble = h("p", { class: "trouble", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    put(trouble);
    try {
      const name = await setPolicy(vhost, queue, key, Number(input.value));
      note(`${key} of queue ${queue} is ${input.value}, by the policy ${name}.`);
      done();
    } catch (error) {
      put(trouble, error.message);
      input.focus();
    }
  };
  return h(
    "form",
    { class: "setting", onsubmit: submit },
    h("label", { for: id }, h("code", {}, key), ` of queue ${queue}`),
    h("div", { class: "value" }, input, h("button", { type: "submit" }, "Apply")),
    h("p", { class: "reason" }, words(sentence(knob.advice)), " It becomes a policy for this queue alone."),
    trouble,
  );
}

async function setPolicy(vhost, queue, key, value) {
  const pattern = `^${queue.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;
  const row = await get(path("queues", vhost, queue));
  const argument = row.arguments?.[`x-${key}`];
  if (typeof argument === "number" && argument < value) {
    throw new RangeError(
      `The queue was declared with x-${key}: ${argument}. Of argument and policy the smaller counts: ` +
        "no policy raises it.",
    );
  }
  const now = row.policy ? await tryGet(path("policies", vhost, row.policy), null) : null;
  const isOwn = now?.pattern === pattern;
  const name = isOwn ? now.name : `queue-${queue}`;
  const body = {
    pattern,
    "apply-to": "queues",
    priority: isOwn ? now.priority : (now?.priority ?? 0) + 1,
    definition: { ...now?.definition, [key]: value },
  };
  await send("PUT", path("policies", vhost, name), body);
  return name;
}
