// Dialog: a question, or a form, above the page. The browser's own <dialog> keeps the focus inside, closes on Escape
// and gives the focus back; here are its words, its buttons, and what is said when the broker refuses.

import { ApiError, Away } from "./api.js";
import { button, h, put } from "./dom.js";
import { values } from "./form.js";

let number = 0;

/** A form in a dialog. `fields` are of form.js; `submit(values)` does it, and an error of it is shown here. */
export function formDialog({ title, fields, submit, action, danger = false, wide = false }) {
  number += 1;
  const heading = `dialog-${number}`;
  const trouble = h("p", { class: "trouble", role: "alert" });
  const doIt = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
  const close = () => dialog.close();
  const form = h(
    "form",
    { novalidate: true, onsubmit: (event) => attempt(event) },
    h("h2", { id: heading }, title),
    h("div", { class: "fields" }, fields),
    trouble,
    h("div", { class: "buttons" }, button("Cancel", close), doIt),
  );
  const dialog = h("dialog", { "aria-labelledby": heading, class: wide ? "wide" : null }, form);

  async function attempt(event) {
    event.preventDefault();
    put(trouble);
    const wrong = form.querySelector(":invalid");
    if (wrong !== null) {
      put(trouble, `${labelOf(wrong)}: ${wrong.validationMessage}`);
      wrong.focus();
      return;
    }
    doIt.disabled = true;
    try {
      await submit(values(form));
      dialog.close();
    } catch (error) {
      const known = error instanceof ApiError || error instanceof Away || error instanceof RangeError;
      put(trouble, known ? error.message : `Something went wrong: ${error.message}`);
      if (!known) console.error(error);
    } finally {
      doIt.disabled = false;
    }
  }

  return open(dialog);
}

/** A question with one button that does it. */
export function confirmDialog({ title, text, action, submit }) {
  return formDialog({ title, fields: [h("p", {}, text)], submit, action, danger: true });
}

/** Something to look at. */
export function showDialog(title, ...content) {
  number += 1;
  const heading = `dialog-${number}`;
  const close = button("Close", () => dialog.close());
  const dialog = h(
    "dialog",
    { "aria-labelledby": heading, class: "wide" },
    h("h2", { id: heading }, title),
    content,
    h("div", { class: "buttons" }, close),
  );
  return open(dialog);
}

function open(dialog) {
  const opener = document.activeElement;
  const leave = () => dialog.close();
  addEventListener("hashchange", leave);
  dialog.addEventListener("close", () => {
    removeEventListener("hashchange", leave);
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function labelOf(input) {
  return input.labels?.[0]?.firstChild?.textContent ?? input.name;
}
