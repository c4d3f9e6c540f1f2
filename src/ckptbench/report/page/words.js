"use strict";
// Numbers as people write and read them: the functions of src/ckptbench/report/answer/quantities.py, with its constants.

const byId = (id) => document.getElementById(id);
const start = JSON.parse(byId("start").textContent);
const { words } = start;
const UNITS = Object.fromEntries(words.units.map((unit) => [unit.name, unit]));
const PERCENT = { name: "%", scale: 100 };
const PLAIN = { name: "", scale: 1 };

/** What is wrong with a text that was entered, and what to enter. */
class Wrong extends Error {}

function sum(text, units, what, asIn) {
  const part = new RegExp(words.part, "y");
  const known = new Map(Object.entries(units));
  let [end, total] = [0, 0];
  for (let match = part.exec(text); match !== null && known.has(match[2]); match = part.exec(text)) {
    end = part.lastIndex;
    total += numberOf(match[1]) * known.get(match[2]);
  }
  if (end === 0 || text.slice(end).trim() !== "") throw new Wrong(`Not ${what}: write a number and its unit, as in ${asIn}`);
  if (!(total >= 1 / words.largest && total <= words.largest)) throw new Wrong(`Not ${what} in the possible range: use ${total < 1 ? "one above 0" : "a smaller one"}`);
  return total;
}

const numberOf = (digits) => Number(digits.replaceAll(",", ""));
const readTime = (text) => sum(text, words.times, "a time", "90s, 8 min, 2h, 1h30min or 3 days");
const readSize = (text) => sum(text, words.sizes, "a size", "98GB or 512 MiB; bits are not read");
const readBandwidth = (text) => sum(text, words.bandwidths, "a bandwidth", "1.6GB/s, 800 MiB/s or 100 Gbit/s");

/** An interval between checkpoints, as a function from the seconds of a step to whole steps. */
function readEvery(text) {
  const match = new RegExp(`^(?:${words.steps})$`, "i").exec(text);
  if (match === null) {
    const seconds = sum(text, words.times, "an interval", '2h, 30 min or "2880 steps"');
    return (stepS) => Math.max(1, Number(fixed(seconds / stepS, 0)));
  }
  const steps = numberOf(match[1]);
  if (!(steps >= 1 && steps <= words.largest && Number.isInteger(steps))) throw new Wrong("Not an interval: use a whole number of steps from 1");
  return () => steps;
}

function readCount(text) {
  const match = new RegExp(`^(?:${words.count})$`).exec(text);
  const value = match === null ? 0 : numberOf(match[1]);
  if (!(value >= 1 && value <= words.most && Number.isInteger(value))) throw new Wrong(`Use a whole number from 1 to ${words.most.toLocaleString("en-US")}`);
  return value;
}

function readPercent(text) {
  const value = Number(text.replace("%", "").trim() || NaN);
  if (!(value >= 0 && value <= 100)) throw new Wrong("Use 0 to 100 %");
  if (value > 0 && value <= 1 && !text.includes("%")) throw new Wrong(`${plain(100 * value)} % or ${plain(value)} %? Write the % too`);
  return value / 100;
}

/** `2.5`, `$2.5`, `2.5 EUR`, as src/ckptbench/cli/values.py reads it. */
function readPrice(text) {
  const [, before, digits, after] = new RegExp(`^(?:${words.price})$`).exec(text) ?? [];
  const value = numberOf(digits ?? "0");
  if ((before && after) || !(value > 0 && value <= words.most)) throw new Wrong("Not a price: write a number above 0, with a currency or without, as in 2.5, $2.5 or 2.5 EUR");
  return { amount: value, before, after };
}

/** With so many places after the point. A tie goes to the even digit, as in Python. */
function fixed(value, places) {
  const scaled = value * 10 ** places;
  const isTie = Math.abs(scaled % 1) === 0.5 && Number.isInteger(value * 2 ** (places + 1));
  return isTie ? ((2 * Math.round(scaled / 2)) / 10 ** places).toFixed(places) : value.toFixed(places);
}

const exponent = (number) => Math.floor(Math.log10(Math.abs(number)));
const lastDigit = (number, digits) => (number && Number.isFinite(number) ? exponent(number) - digits + 1 : 0);

/** Rounded to this power of ten; none before the point is lost. */
function inDigits(number, step) {
  const places = Math.min(Math.max(0, -step), 100);
  const text = fixed(number, places);
  const [whole, part] = (Number(text) === 0 ? text.replace("-", "") : text).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part === undefined ? "" : `.${part}`);
}

/** A price as it was entered. */
const priceOf = ({ amount, before, after }) => `${before}${amount.toLocaleString("en-US", { maximumSignificantDigits: 6 })} ${after}`.trimEnd();

/** What GPU-hours cost, to two digits and in the currency of the price. */
function money({ amount: each, before, after }, hours) {
  const step = lastDigit(each * hours, 2);
  const total = step > 0 ? Number(fixed((each * hours) / 10 ** step, 0)) * 10 ** step : Number(fixed(each * hours, -step));
  return `${before}${inDigits(total, total >= 10 ? 0 : -2)} ${after}`.trimEnd();
}

const plain = (number) => inDigits(number, Math.min(0, lastDigit(number, words.digits)));
const named = (text, unit) => `${text} ${unit.name}`.trimEnd();

const unitOfTime = (seconds) => words.units.find(({ longest }) => !(seconds > longest));

/** `12 % [9, 15]` of {value, lo, hi}: each number has as many digits as move it by at most a twentieth of the interval. */
function amount(known, unit = PLAIN) {
  const [value, lo, hi] = [known.value, known.lo, known.hi].map((each) => unit.scale * each);
  if (!(lo < hi)) return named(plain(value), unit);
  if (hi - lo < words.narrow * Math.abs(value)) return named(inDigits(value, lastDigit(value, words.most_digits)), unit);
  const step = exponent((hi - lo) / words.steps_wide);
  const own = (each) => inDigits(each, lo <= 0 && 0 <= hi ? step : Math.min(step, lastDigit(each, words.digits)));
  const isLost = numberOf(own(value)) === 0 && Math.abs(value) >= words.not_zero * (hi - lo);
  return `${named(isLost ? inDigits(value, exponent(value)) : own(value), unit)} [${own(lo)}, ${own(hi)}]`;
}

const duration = (seconds) => amount({ value: seconds }, unitOfTime(seconds));
const percent = (known) => amount(known, PERCENT);
/** `182`, or `costs 182 more`: GPU-hours a day. */
const saving = ({ value, lo, hi }) => (value <= -words.saved_from ? `costs ${amount({ value: -value, lo: -hi, hi: -lo })} more` : amount({ value, lo, hi }));
const span = (lo, hi, unit = PLAIN) => named(`${plain(lo * unit.scale)} - ${plain(hi * unit.scale)}`, unit);
const tells = ({ lo, hi }) => !(hi > words.tells * lo);
/** The text with each number kept beside its unit at the end of a line. */
const kept = (text) => text.replace(/(?<=\d) (?=[%A-Za-z])| (?=\[)|(?<=\[[^\]]*) (?=[^[]*\])/g, "\u00a0");
const counted = (value, noun) => `${value.toLocaleString("en-US")} ${noun}${value === 1 ? "" : "s"}`;
