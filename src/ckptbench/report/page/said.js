"use strict";
// The answer in words.

const SMALLEST_PART = 1e-5;
const MOST_NAMED = 2; // As in src/ckptbench/cli/sentences.py.

function lost(known) {
  return !((known.hi > known.lo ? known.hi : known.value) >= SMALLEST_PART) ? `less than ${100 * SMALLEST_PART} %` : percent(known);
}

/** Before numbers from a bound on the failure rate. */
const atLeast = (bound) => (bound ? "at least " : "");
const atMost = (bound) => (bound ? "at most " : "");
/** If a log does not say when its asynchronous saves finish, losses are larger than these. */
const loses = ({ bound, isLeast }, known) => `${isLeast ? "at least " : atMost(bound)}${lost(known)}`;
/** Where failures may be rarer, a longer interval in use loses less than it seems, and a shorter one still saves too often. */
const saves = ({ bound, saved, steps }, now) => `${bound && now.steps <= steps.value ? atLeast(bound) : atMost(bound)}${saving(saved)}`;
const whole = (steps) => steps.toLocaleString("en-US");

/** Whether anything much gets done at the best interval. */
const isUseful = ({ bound, lost: { value } }) => bound || 1 - value >= start.least_useful;

/** Whether the training of the log is not longer than the best interval. */
const outlasts = ({ steps }) => steps.value >= (origin.training_steps ?? Infinity);

/** As src/ckptbench/cli/sentences.py says it: of many strategies only the best one. */
function moneyOf({ now, strategies }, lowest, { "gpu-hour-price": price, gpus }) {
  if (price === null) return "";
  const sum_ = (hours) => [1, words.days_per_month].map((days, place) => `${money(price, hours * days)} a ${["day", "month"][place]}`).join(", ");
  const of = (each) => {
    const { name, bound, saved, steps, lost: { value } } = each;
    if (!saved) return `${name} loses ${atMost(bound)}${sum_(value * HOURS_PER_DAY * gpus)}`;
    const before = bound ? (now.steps > steps.value ? atMost : atLeast)(bound) : "";
    return saved.value < 0 ? `${name} costs ${before}${sum_(-saved.value)} more` : `${name} saves ${before}${sum_(saved.value)}`;
  };
  const today = now ? [`now loses ${atMost(strategies[0].bound)}${sum_(now.lost.value * HOURS_PER_DAY * gpus)}`] : [];
  const losses = [...today, ...(strategies.length > MOST_NAMED ? [lowest] : strategies).map(of)];
  return ` Money, at ${priceOf(price)} a GPU-hour: ${losses.join("; ")}.`;
}

/** That a time limit counts, or does not. */
function limitSaid({ values: { limit } }, { estimate: { limitS } }) {
  if (limit === null) return "";
  return limitS === null ? ` The training ends before the ${duration(limit)} limit.` : ` A job ends after ${duration(limit)}: what that loses is counted. A save at a signal before it loses less: ckptbench decide --limit says how much.`;
}

/** Whose saves fit into a warning before failures. */
function warningSaid({ values: { warning, announced } }, { strategies }) {
  if (warning === null) return "";
  const [early, late] = [true, false].map((fits) => strategies.filter(({ estimate }) => (inTime(estimate) > 0) === fits).map(({ name }) => name));
  const said = [early.length && `${listed(early)} saves in time`, late.length && `${listed(late)} is too late`].filter(Boolean);
  return ` Of the failures ${percent({ value: announced, lo: NaN, hi: NaN })} are announced ${duration(warning)} before: ${said.join("; ")}.`;
}

function sentence({ bound, now, strategies }, lowest) {
  const { name, seconds, steps, lost: least, fine: { from, to } } = lowest;
  if (!isUseful(lowest)) return "Next to nothing gets done at any interval: failures come too fast for these costs.";
  if (outlasts(lowest)) return `With ${name}, no save is needed against failures: the best interval, ${counted(steps.value, "step")}, is not shorter than the training, ${counted(origin.training_steps, "step")}. Save at the end, before the time limit.`;
  const unit = unitOfTime(seconds.value);
  const range = tells(seconds) ? "" : ` The best interval may be ${span(seconds.lo, seconds.hi, unit)}: counting more failures on your machine narrows it.`;
  const waits = lowest.waits > 0 ? ` Each save then waits ${duration(lowest.waits)} for the one before, which is still being written.` : "";
  const often = `${bound ? " or less often" : ""}: that loses ${loses(lowest, least)} of the time.${waits}${range}${bound ? " No failure was seen." : ""}`;
  const begin = `With ${name}, take a checkpoint every ${duration(seconds.value)} (${counted(steps.value, "step")})${often}`;
  if (now === null) return begin;
  if (!bound && lowest === strategies[0] && from <= now.steps && now.steps <= to) return `${begin} Every ${duration(now.seconds)}, as now, is fine too.`;
  const why = now.waits > 0 ? `, as each save waits ${duration(now.waits)} for the one before` : "";
  return `${begin} Now, every ${duration(now.seconds)} with ${strategies[0].name}, it loses ${loses(strategies[0], now.lost)}${why}. The change saves ${saves(lowest, now)} GPU-hours a day.`;
}

const SHORT = { gpus: "GPUs", mtbf: "failures", step: "step", restart: "restart", now: "interval now" };
const listed = (texts) => texts.join(", ").replace(/, (?=[^,]*$)/, " and ");

/** Whose the numbers are, where they started from an example: each is its until the reader has entered it. */
function ofWhom() {
  const { texts, example, strategies } = asked;
  const [theirs, own] = [true, false].map((isTheirs) => [
    ...Object.keys(SHORT).filter((name) => (texts.get(name) || (name === "mtbf" && texts.get("rate"))) && example.has(name) === isTheirs),
    ...strategies.filter((each) => !each.example?.length !== isTheirs).map(({ name }) => name),
  ].map((name) => SHORT[name] ?? name));
  if (theirs.length === 0) return ["yours", "your numbers"];
  if (own.length === 0) return ["example", `${origin.title}, not your numbers`];
  return ["part", own.length > theirs.length ? `your numbers, but the example's ${listed(theirs)}` : `your ${listed(own)}; the other numbers are the example's`];
}

/** How the answer is known: `measured` or `given`, `projected`, or `yours`. */
function standing({ values, strategies, rate }) {
  if (origin.how === "") return ofWhom();
  if (values.gpus !== origin.ranks) return ["projected", `projected from ${origin.where}${strategies.some(({ known }) => known?.growth) ? "" : ", costs taken as constant"}: not measured`];
  const isOwn = values.step !== origin.step || strategies.some(({ isMeasured }) => !isMeasured) || values.restart !== origin.restart || rate === undefined;
  const restart = origin.how_of.restart;
  if (!isOwn && restart.startsWith("not")) return [origin.how, `${origin.how} at ${origin.where}, but for the restart: ${restart}`];
  return isOwn ? ["yours", `${origin.how} at ${origin.where}, with numbers of yours`] : [origin.how, `${origin.how} at ${origin.where}`];
}

const isStart = () => JSON.stringify(writePairs(asked)) === JSON.stringify(writePairs(startOf(origin)));

/** To copy into the program whose log was read: a round number, or that of now where that is fine. */
function setting({ now, strategies }, lowest) {
  const { bound, steps, fine, estimate: { saving } } = lowest;
  if (bound) return "No failure was seen: no setting follows from a bound.";
  const isKept = now !== null && lowest === strategies[0] && fine.from <= now.steps && now.steps <= fine.to;
  const round = isKept ? now.steps : rounded(steps.value, fine, origin.multiple_of);
  const isAsync = saving.durableS > saving.stallS;
  const own = (origin.settings ?? start.settings).find((each) => !(isAsync && each.blocking_only));
  return (own === undefined ? `every ${counted(round, "step")}` : own.text.replace("{steps}", round) + (isAsync ? own.async_text : "")) + (isKept ? ", as now" : "");
}
