// DOM: elements from values. Text is always text: nothing here, or anywhere in the page, reads a string as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** h("a", { href: "#/queues", onclick: go }, "Queues") */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** `kind`: primary, danger, quiet, link; `about` is read out in place of a label that says too little. */
export function button(label, onclick, kind = null, about = null) {
  return h("button", { type: "button", class: kind, "aria-label": about, onclick }, label);
}

/** The same for SVG. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Put these in the place of what was there. */
export function put(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** The same, but what is equal stays as it is: a click that began on it still ends on it, and focus stays. */
export function renew(element, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  const wanted = [...fresh.childNodes];
  const there = [...element.childNodes];
  wanted.forEach((node, i) => {
    if (node.nodeName === "DETAILS" && there[i]?.open) node.open = true; // unfolded by a person
    if (i >= there.length) element.append(node);
    else if (!there[i].isEqualNode(node)) there[i].replaceWith(node);
  });
  there.slice(wanted.length).forEach((node) => node.remove());
  return element;
}

/**
 * The same at every depth, for what changes each second while one may be in the middle of it with the keyboard. What
 * can be pressed is kept only if it is equal: so its attributes must tell it apart, as a `title` does.
 */
export function renewDeep(element, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  settle(element, fresh);
  return element;
}

function settle(element, fresh) {
  const there = [...element.childNodes];
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, i) => {
    if (i >= there.length) element.append(node);
    else if (there[i].isEqualNode(node)) return;
    else if (isAlike(there[i], node)) settle(there[i], node);
    else there[i].replaceWith(node);
  });
  there.slice(wanted.length).forEach((node) => node.remove());
}

function isAlike(one, other) {
  if (one.nodeType !== Node.ELEMENT_NODE || one.matches("a, button, form")) return false;
  return one.cloneNode(false).isEqualNode(other.cloneNode(false));
}
