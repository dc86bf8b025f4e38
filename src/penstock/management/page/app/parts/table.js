// Table: a list of the API, a page of it at a time. Filter, order and paging are done by the broker: of ten thousand
// queues no more than a page comes here. What is chosen is in the address. Rows that are the same stay the same
// elements.

import { ApiError, get, query } from "./api.js";
import { h, put, renew } from "./dom.js";
import { count } from "./format.js";
import { remember } from "./router.js";

const PAGE_SIZE = 50;
const SECONDS = 5; // how often a list is looked at again
const TYPING_MS = 250; // after the last key, before the broker is asked

/**
 * A column: { title, cell(row) -> text or node, sort: the API's name to order by, number: right-aligned, wide: left out
 * on narrow screens }. `url()` may change, as when another vhost is chosen: then call `refresh(true)`.
 */
export function list({ place, label, url, columns, key, order, empty, tools, descending = false, more = {} }) {
  const asked = place.query;
  const state = {
    page: Number(asked.get("page")) || 1,
    name: asked.get("name") ?? "",
    sort: asked.get("sort") ?? order,
    reverse: asked.has("sort") ? asked.get("reverse") === "true" : descending,
  };
  const heads = columns.map((column) => head(column));
  const body = h("tbody");
  const caption = h("caption", { class: "unseen" }, label);
  const table = h("table", {}, caption, h("thead", {}, h("tr", {}, heads)), body);
  const pager = h("nav", { class: "pager", "aria-label": `Pages of ${label}` });
  const amount = h("p", { class: "amount", role: "status" });
  const filter = h("input", {
    type: "search",
    value: state.name,
    placeholder: "Filter by name",
    "aria-label": `Filter ${label} by name`,
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => typed(),
  });
  let typing = 0;

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(() => change({ name: filter.value.trim(), page: 1 }), TYPING_MS);
  }

  function change(values) {
    if (place.left) return; // the address is another view's by now
    Object.assign(state, values);
    remember({
      page: state.page > 1 ? state.page : "",
      name: state.name,
      sort: state.sort === order && state.reverse === descending ? "" : state.sort,
      reverse: state.sort === order && state.reverse === descending ? "" : String(state.reverse),
    });
    timer.now();
  }

  function head(column) {
    const classes = classesOf(column);
    if (!column.sort) return h("th", { scope: "col", class: classes }, column.title);
    const turn = () => {
      const same = state.sort === column.sort;
      change({ sort: column.sort, reverse: same ? !state.reverse : Boolean(column.number), page: 1 });
    };
    const button = h("button", { type: "button", class: "sort", onclick: turn }, column.title);
    return h("th", { scope: "col", class: classes, "data-sort": column.sort }, button);
  }

  function cellOf(column, row, i) {
    const value = column.cell(row);
    const classes = [classesOf(column), (value === "0" || value === "0/s") && "zero"].filter(Boolean).join(" ");
    return h(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: classes || null }, value ?? "–");
  }

  function draw(items) {
    const there = new Map([...body.children].map((line) => [line.dataset.key, line]));
    const lines = items.map((row) => {
      const name = key(row);
      const line = there.get(name) ?? h("tr", { "data-key": name });
      renew(line, columns.map((column, i) => cellOf(column, row, i)));
      return line;
    });
    if (!lines.length) {
      const why = state.name ? `Nothing has “${state.name}” in its name.` : empty;
      lines.push(h("tr", { class: "empty" }, h("td", { colspan: columns.length }, why)));
    }
    lines.forEach((line, i) => body.children[i] === line || body.insertBefore(line, body.children[i] ?? null));
    [...body.children].slice(lines.length).forEach((line) => line.remove());
    for (const th of heads) {
      if (th.dataset.sort !== state.sort) th.removeAttribute("aria-sort");
      else th.setAttribute("aria-sort", state.reverse ? "descending" : "ascending");
    }
  }

  function drawPager(answer) {
    const { page, page_count: pages, filtered_count: found, total_count: all } = answer;
    renew(amount, found === all ? `${count(all)} in all` : `${count(found)} of ${count(all)}`);
    if (pages <= 1) return put(pager);
    // By the page that is open when it is pressed: the button stays the same element from page to page.
    const step = (label, by, allowed) =>
      h("button", { type: "button", disabled: !allowed, onclick: () => change({ page: state.page + by }) }, label);
    const where = h("span", {}, `Page ${count(page)} of ${count(pages)}`);
    return renew(pager, step("Previous", -1, page > 1), where, step("Next", 1, page < pages));
  }

  const timer = place.every(SECONDS, async (signal) => {
    const words = { page: state.page, page_size: PAGE_SIZE, sort: state.sort, sort_reverse: state.reverse };
    let answer;
    try {
      answer = await get(url() + query({ ...words, name: state.name, ...more }), signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 400 || state.page === 1) throw error;
      return change({ page: 1 }); // there were more pages when this one was opened
    }
    draw(answer.items);
    return drawPager(answer);
  });

  const scroll = h("div", { class: "table-scroll", role: "region", "aria-label": label, tabindex: "0" }, table);
  const element = h("section", { class: "list" }, h("div", { class: "tools" }, filter, tools, amount), scroll, pager);
  return { element, refresh: (first = false) => (first ? change({ page: 1 }) : timer.now()) };
}

function classesOf(column) {
  return [column.number && "number", column.wide && "wide-only"].filter(Boolean).join(" ") || null;
}

/** A small table that is there as a whole: [title or { title, number, wide }], rows of cells. */
export function plainTable(label, titles, rows, empty = "None.") {
  const kinds = titles.map((title) => (typeof title === "string" ? { title } : title));
  const head = kinds.map((kind) => h("th", { scope: "col", class: classesOf(kind) }, kind.title));
  const lines = rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: classesOf(kinds[i]) }, cell))));
  const none = h("tr", { class: "empty" }, h("td", { colspan: titles.length }, empty));
  const table = h(
    "table",
    {},
    h("caption", { class: "unseen" }, label),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, lines.length ? lines : none),
  );
  return h("div", { class: "table-scroll", role: "region", "aria-label": label, tabindex: "0" }, table);
}
