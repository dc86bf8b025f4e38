// Place: where a view draws, and for how long. When one leaves, its timers stop and its requests are given up.

import { ApiError, Away } from "./api.js";
import { h, put } from "./dom.js";

const HIDDEN_MS = 1000; // how often a page in the background looks whether it is seen again

export class Place {
  constructor(element, route) {
    this.element = element;
    this.params = route.params;
    this.query = route.query;
    this.leaving = new AbortController();
    this.trouble = h("div", { class: "trouble", role: "alert" });
  }

  get signal() {
    return this.leaving.signal;
  }

  get left() {
    return this.leaving.signal.aborted;
  }

  leave() {
    this.leaving.abort();
  }

  /** The view's heading and what stands beside it; then its content. */
  show(title, beside, ...content) {
    document.title = `${title} · Penstock`;
    const head = h("div", { class: "page-head" }, h("h1", {}, title), h("div", { class: "actions" }, beside));
    put(this.element, head, this.trouble, content);
  }

  /** Do this now and every so many seconds, until one leaves. `now()` does it at once. */
  every(seconds, task) {
    let timer = 0;
    let running = false;
    let again = false;
    const turn = async () => {
      clearTimeout(timer);
      if (running) {
        again = true;
        return;
      }
      running = true;
      try {
        if (!document.hidden) await this.attempt(task);
      } finally {
        running = false;
      }
      if (this.left) return;
      timer = setTimeout(turn, again ? 0 : document.hidden ? HIDDEN_MS : seconds * 1000);
      again = false;
    };
    this.signal.addEventListener("abort", () => clearTimeout(timer));
    document.addEventListener("visibilitychange", () => document.hidden || turn(), { signal: this.signal });
    document.addEventListener("penstock:found", turn, { signal: this.signal });
    turn();
    return { now: turn };
  }

  async attempt(task) {
    try {
      await task(this.signal);
      if (!this.left && this.trouble.firstChild) put(this.trouble);
    } catch (error) {
      if (this.left || error instanceof Away) return;
      put(
        this.trouble,
        h("p", {}, error instanceof ApiError ? error.message : `Something went wrong: ${error.message}`),
      );
      if (!(error instanceof ApiError)) console.error(error);
    }
  }
}
