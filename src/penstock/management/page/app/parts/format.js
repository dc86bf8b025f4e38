// Format: numbers, bytes, times and states as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 12345 -> 12,345; what is not there is a dash. */
export function count(value) {
  return typeof value === "number" && Number.isFinite(value) ? whole.format(value) : "–";
}

/** 1234567 -> 1.23 M, for axes and tiles. */
export function short(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)} G`;
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  return size < 10 && size % 1 ? value.toFixed(1) : whole.format(value);
}

function trim(value) {
  return String(Number(value.toPrecision(3)));
}

export function rate(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  return `${value > 0 && value < 10 ? value.toFixed(1) : short(value)}/s`;
}

export function bytes(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit && Math.abs(size) < 100 ? size.toFixed(1) : Math.round(size)} ${BYTES[unit]}`;
}

/** Seconds -> "41 ms", "1.4 s", "41 s", "3 min 20 s", "5 h 2 min", "3 d 4 h"; the report says the same (words.py). */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  if (seconds > 0 && seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const all = Math.round(seconds);
  if (all < 60) return `${all} s`;
  if (all < 3600) return join(Math.floor(all / 60), "min", all % 60, "s");
  if (all < 86400) return join(Math.floor(all / 3600), "h", Math.floor((all % 3600) / 60), "min");
  return join(Math.floor(all / 86400), "d", Math.floor((all % 86400) / 3600), "h");
}

/** The same where there is little room: one unit. */
export function brief(seconds) {
  if (typeof seconds !== "number" || seconds < 120) return duration(seconds < 60 ? seconds : 60);
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

function join(more, unit, less, smaller) {
  return less ? `${more} ${unit} ${less} ${smaller}` : `${more} ${unit}`;
}

export function percent(share) {
  return typeof share === "number" ? `${Math.round(share * 100)} %` : "–";
}

/** Wall clock milliseconds -> 14:03:22, with the day when it is another one. */
export function moment(ms) {
  if (typeof ms !== "number") return "–";
  const then = new Date(ms);
  const time = then.toLocaleTimeString("en-GB");
  return then.toDateString() === new Date().toDateString() ? time : `${then.toLocaleDateString("en-CA")} ${time}`;
}

/** A value of JSON in one line. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
