// API: requests to the broker, by the session's cookie. What a request can meet besides an answer:
// the session is over (to the login, and back here afterwards), the broker is away (link.js), a refusal (ApiError).

import * as link from "./link.js";

const ACTIVE_MS = 60_000; // after a person's last move: what is asked for later is the page's own doing

let moved = Date.now();
for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
  addEventListener(kind, () => (moved = Date.now()), { passive: true, capture: true });
}

/** A session ends when nobody uses it: that the page asks by itself is no use. */
const whoAsks = () => (Date.now() - moved < ACTIVE_MS ? "1" : "auto");

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

/** The broker did not answer: link.js says so on the page, callers need not. */
export class Away extends Error {}

/** path("queues", "/", "a b") -> /api/queues/%2F/a%20b; undefined parts are left out. */
export function path(...parts) {
  return "/api/" + parts.filter((part) => part !== undefined && part !== "").map(encodeURIComponent).join("/");
}

/** query({ page: 1, name: "" }) -> ?page=1 */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return text ? `?${text}` : "";
}

async function call(method, url, body, signal) {
  const headers = { "X-Penstock": whoAsks(), Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method,
      headers,
      signal,
      cache: "no-store",
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    link.lost();
    throw new Away("the broker does not answer");
  }
  link.found();
  if (response.status === 401) {
    location.assign("/login" + location.hash); // the fragment stays in the browser
    throw new Away("the session is over");
  }
  const answer = await read(response, signal);
  if (!response.ok) throw new ApiError(response.status, answer?.reason || `the broker answered ${response.status}`);
  return answer;
}

async function read(response, signal) {
  try {
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  } catch (error) {
    if (signal?.aborted) throw error;
    if (error instanceof SyntaxError) throw new ApiError(response.status, "the answer is not JSON");
    link.lost();
    throw new Away("the broker stopped in the middle of an answer");
  }
}

export const get = (url, signal) => call("GET", url, undefined, signal);
export const send = (method, url, body = {}) => call(method, url, body);
export const remove = (url) => call("DELETE", url);

/** A value, or this if the broker has no such thing or does not let us see it. */
export async function tryGet(url, otherwise, signal) {
  try {
    return await get(url, signal);
  } catch (error) {
    if (error instanceof ApiError) return otherwise;
    throw error;
  }
}

export async function logout() {
  try {
    await call("POST", "/logout", {});
    location.assign("/login");
  } catch (error) {
    if (!(error instanceof Away)) throw error; // the line at the top says that the broker is away
  }
}
