// Form: labelled fields, and their values as the API wants them. A name in RangeErrors is what a person gets to read.

import { h } from "./dom.js";

let number = 0;

function field(label, input, hint) {
  number += 1;
  input.id = `field-${number}`;
  const about = hint ? h("small", { id: `${input.id}-hint` }, hint) : null;
  if (about) input.setAttribute("aria-describedby", about.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, about);
}

export function text(name, label, { value = "", hint, ...more } = {}) {
  return field(
    label,
    h("input", { name, value, spellcheck: "false", autocomplete: "off", autocapitalize: "none", ...more }),
    hint,
  );
}

export function password(name, label, { hint, ...more } = {}) {
  return field(label, h("input", { name, type: "password", autocomplete: "new-password", ...more }), hint);
}

export function file(name, label, { hint, ...more } = {}) {
  return field(label, h("input", { name, type: "file", ...more }), hint);
}

/** A whole number, or nothing. */
export function number_(name, label, { value = "", hint, ...more } = {}) {
  return field(
    label,
    h("input", { name, value, type: "number", inputmode: "numeric", step: "1", min: "0", ...more }),
    hint,
  );
}
export { number_ as number };

export function choice(name, label, options, { value, hint } = {}) {
  const pairs = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  const made = pairs.map(([key, shown]) => h("option", { value: key, selected: key === value }, shown));
  return field(label, h("select", { name }, made), hint);
}

export function area(name, label, { value = "", hint, rows = 3, kind = "text" } = {}) {
  const input = h("textarea", { name, rows, spellcheck: "false", "data-kind": kind });
  input.value = value;
  return field(label, input, hint);
}

/** A JSON object; empty is {}. */
export function json(name, label, more = {}) {
  return area(name, label, { ...more, kind: "json" });
}

export function tick(name, label, { checked = false, value } = {}) {
  number += 1;
  const input = h("input", { type: "checkbox", name, id: `field-${number}`, checked, value });
  return h("div", { class: "tick" }, input, h("label", { for: input.id }, label));
}

/** Fields that few need, folded. */
export function more(title, ...fields) {
  return h("details", {}, h("summary", {}, title), h("div", { class: "fields" }, fields));
}

/** { name: value } of a form: numbers as numbers, ticks as booleans, JSON as objects; an empty number is left out. */
export function values(form) {
  const found = {};
  for (const input of form.elements) {
    if (!input.name) continue;
    if (input.type === "checkbox") {
      if (!input.hasAttribute("value")) found[input.name] = input.checked;
      else if (input.checked) found[input.name] = [...(found[input.name] ?? []), input.value];
      else found[input.name] ??= [];
    } else if (input.type === "file") {
      found[input.name] = input.files[0];
    } else if (input.type === "number") {
      if (input.value !== "") found[input.name] = Number(input.value);
    } else if (input.dataset.kind === "json") {
      found[input.name] = object(input);
    } else {
      found[input.name] = input.value;
    }
  }
  return found;
}

function object(input) {
  const written = input.value.trim();
  if (!written) return {};
  let value;
  try {
    value = JSON.parse(written);
  } catch (error) {
    throw new RangeError(`${input.labels[0].textContent}: no JSON: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new RangeError(`${input.labels[0].textContent}: not a JSON object, as {"key": "value"}`);
  }
  return value;
}

/** Of { "x-message-ttl": 5, "x-mode": "" } those that were given. */
export function given(found, names) {
  const pairs = names.map((name) => [name, found[name]]);
  return Object.fromEntries(pairs.filter(([, value]) => value !== undefined && value !== "" && value !== false));
}
