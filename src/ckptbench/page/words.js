"use strict";
// Numbers in words, as in the findings (src/ckptbench/figures/findings): as many digits as their interval allows.

const SMALLEST_PART = 1e-5;
const STEPS_WIDE = 3;
const STEPS_WIDE_ABOUT_ZERO = 6;
const DIGITS = 2;
const MOST_DIGITS = 4;
const NOT_ZERO = 0.02;

function exponent(number) {
  return Math.floor(Math.log10(number));
}

/** Rounded to this power of ten. */
function rounded(number, step) {
  const text = step > 0 ? String(Math.round(number / 10 ** step) * 10 ** step) : number.toFixed(Math.min(-step, 100));
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** `12 % [9, 15]` of {value, lo, hi}, which are multiplied by `scale`. */
function amount(known, scale, unit) {
  const [value, lo, hi] = [known.value, known.lo, known.hi].map((number) => scale * number);
  const named = (text) => (unit ? `${text} ${unit}` : text);
  if (!Number.isFinite(value)) return "not known";
  if (!(lo < hi)) return named(rounded(value, value ? exponent(Math.abs(value)) - DIGITS + 1 : 0));
  const nearest = exponent(Math.min(...[lo, hi, value].map(Math.abs)));
  const step = lo <= 0 && 0 <= hi
    ? exponent((hi - lo) / STEPS_WIDE_ABOUT_ZERO)
    : Math.max(Math.min(exponent((hi - lo) / STEPS_WIDE), nearest), nearest - MOST_DIGITS + 1);
  const [plain, low, high] = [value, lo, hi].map((number) => rounded(number, step));
  const lost = Number(plain) === 0 && Math.abs(value) >= NOT_ZERO * (hi - lo);
  const shown = named(lost ? rounded(value, exponent(Math.abs(value))) : plain);
  return low === high ? shown : `${shown} [${low}, ${high}]`;
}

function plainAmount(value, unit) {
  return amount({ value, lo: NaN, hi: NaN }, 1, unit);
}

/** A part of the time in percent. Tiny ones are only said to be small. */
function percent(part) {
  const highest = part.lo < part.hi ? part.hi : part.value;
  if (highest < SMALLEST_PART) return `less than ${100 * SMALLEST_PART} %`;
  return amount(part, 100, "%");
}

/** `12 s`, `5.2 minutes`, `3.1 hours`, `40 days`, `12 years`. */
function duration(seconds) {
  const hours = seconds / 3600;
  const units = [["s", 3600, 1 / 60], ["minutes", 60, 2], ["hours", 1, 48], ["days", 1 / 24, 2 * 365.25 * 24]];
  for (const [name, scale, most] of units) {
    if (hours < most) return plainAmount(hours * scale, name);
  }
  return plainAmount(hours / 24 / 365.25, "years");
}

/** A whole number with three digits that count: `1,720`. */
function number(value) {
  return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 0 });
}

function steps(value) {
  return `${number(value)} step${Math.round(value) === 1 ? "" : "s"}`;
}

function counted(value, noun) {
  return `${value.toLocaleString("en-US")} ${noun}${value === 1 ? "" : "s"}`;
}

/** A short mark of the time axis: `10 s`, `5 min`, `2 h`, `3 d`. */
function mark(seconds) {
  for (const [name, scale] of [["y", 365.25 * 86400], ["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= scale * 0.999) return `${Number((seconds / scale).toPrecision(2))} ${name}`;
  }
  return `${Number(seconds.toPrecision(2))} s`;
}

/** `a`, `a and b`, `a, b and c`. */
function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
