// Axis: the digest's steps as places from left to right, and round moments of the reader's own clock below them.

import { s } from "../parts/dom.js";

const TICK_PX = 84; // between two moments, at least
const TICKS_S = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** `digest` has since_ms, step_s and steps. */
export function axis(digest, left, width) {
  const since = digest.since_ms;
  const step = digest.step_s * 1000;
  const until = since + step * digest.steps;
  const x = (at) => left + (at / digest.steps) * (width - left);
  // The step with which the tables begin: before it nothing is known, which is not nothing.
  const known = Math.max(0, digest.steps - digest.known_s / digest.step_s);
  return { since, until, step, steps: digest.steps, known, left, width, x };
}

export function timeTicks(one, top, floor) {
  const span = one.until - one.since;
  const room = Math.max(1, Math.floor((one.width - one.left) / TICK_PX));
  const every = (TICKS_S.find((seconds) => (seconds * 1000 * room) >= span) ?? TICKS_S.at(-1)) * 1000;
  const shift = new Date(one.until).getTimezoneOffset() * 60_000;
  const marks = [];
  for (let at = Math.ceil((one.since - shift) / every) * every + shift; at <= one.until; at += every) {
    const place = one.x((at - one.since) / one.step);
    const anchor = place > one.width - 24 ? "end" : place < one.left + 24 ? "start" : "middle";
    const clock = new Date(at).toLocaleTimeString("en-GB").slice(0, every < 60_000 ? 8 : 5);
    marks.push(
      s("line", { class: "grid", x1: place, x2: place, y1: top, y2: floor + 3 }),
      s("text", { class: "tick-label", x: place, y: floor + 16, "text-anchor": anchor }, clock),
    );
  }
  return marks;
}
