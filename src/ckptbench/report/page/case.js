"use strict";
// From the texts of a case to the numbers of its answer. Nothing here touches the page.

const SECONDS_PER_HOUR = 3600;
const HOURS_PER_DAY = 24;
const KINDS = ["blocking", "async"];
/** How each field is read. What is optional may be left empty. */
const FIELDS = {
  gpus: { read: readCount },
  mtbf: { read: readTime, optional: true },
  step: { read: readTime },
  restart: { read: readTime },
  now: { read: readEvery, optional: true },
  state: { read: readSize, optional: true },
  bandwidth: { read: readBandwidth, optional: true },
  survived: { read: readPercent, optional: true },
  pause: { read: readTime, optional: true },
  limit: { read: readTime, optional: true },
  warning: { read: readTime, optional: true },
  announced: { read: readPercent, optional: true },
  "gpu-hour-price": { read: readPrice, optional: true },
};
const OF_EXAMPLE = "example";

const rateOf = (wanted) => start.rates.find(({ name }) => name === wanted);

/**
 * A case as a Map of texts and a list of strategies, from pairs in the options of the command. What is no option is left out.
 * `example` names the fields that are still an example's; a strategy has such a list of its own.
 */
function readPairs(pairs, before = null) {
  const texts = new Map(before?.texts);
  const example = new Set(before?.example);
  const strategies = [];
  for (const [name, text] of pairs) {
    if (KINDS.includes(name)) strategies.push(readStrategy(name, text));
    else if (Object.hasOwn(FIELDS, name)) texts.set(name, text);
    else if (name === "rate" && rateOf(text)) texts.set(name, text).delete("mtbf");
    if (name === "mtbf") texts.delete("rate");
    example.delete(name === "rate" ? "mtbf" : name);
  }
  const made = { texts, example, strategies: strategies.length ? strategies : before?.strategies ?? [] };
  return markExample(made, pairs.find(([name]) => name === OF_EXAMPLE)?.[1].split(" ") ?? []);
}

const partsOf = ({ kind }) => (kind === "async" ? ["stall", "then"] : ["stall"]);

/** `mtbf` is a field, and `then-2` a time of the second strategy. */
function markExample(made, names) {
  for (const name of names) if (made.texts.get(name)) made.example.add(name);
  made.strategies.forEach((each, place) => {
    const parts = partsOf(each).filter((part_) => each[part_] && names.includes(`${part_}-${place + 1}`));
    if (parts.length) each.example = parts;
  });
  return made;
}

const namesOfExample = ({ example, strategies }) => [...example, ...strategies.flatMap((each, place) => (each.example ?? []).map((part_) => `${part_}-${place + 1}`))];

/** The case with which one starts from `origin`. */
function startOf({ how, isDropped, pairs }) {
  const made = readPairs(pairs);
  const all = [...made.texts.keys(), ...made.strategies.flatMap((each, place) => partsOf(each).map((part_) => `${part_}-${place + 1}`))];
  return how === "" && !isDropped ? markExample(made, all) : made;
}

/** `60s` and `sharded=60s` of a blocking strategy, `3s+90s` of an asynchronous one. */
function readStrategy(kind, text) {
  const named = text.lastIndexOf("=");
  const [stall, ...then] = text.slice(named + 1).split(/(?<!\d[eE])\+/).map((each) => each.trim());
  return { kind, name: named < 0 ? kind : text.slice(0, named).trim(), stall, then: then.join("+") };
}

/** What was emptied is said too, or the page would start from what stood there. */
function writePairs(made) {
  const { texts, strategies } = made;
  const names = namesOfExample(made);
  const of = ({ kind, name, stall, then }) => `${name === kind ? "" : `${name}=`}${stall}${kind === "async" ? `+${then}` : ""}`;
  return [...[...texts].filter(([name, text]) => text !== "" || origin.pairs.some(([first]) => first === name)), ...strategies.map((each) => [each.kind, of(each)]), ...(names.length ? [[OF_EXAMPLE, names.join(" ")]] : [])];
}

/** The numbers of a case: with all digits where its text is still that of `origin`. Wrong texts are in `wrong`, by field. */
function numbersOf(asked, origin) {
  const first = readPairs(origin.pairs);
  const wrong = new Map();
  const attempt = (field, read) => {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      wrong.set(field, error.message);
      return null;
    }
  };
  const values = Object.fromEntries(Object.entries(FIELDS).map(([name, { read, optional }]) => {
    const text = asked.texts.get(name) ?? "";
    if (text === first.texts.get(name) && origin[name] !== undefined) return [name, origin[name]];
    if (text === "" && optional) return [name, null];
    return [name, attempt(name, () => read(text))];
  }));
  if (values.warning !== null && values.announced === null && !wrong.has("announced")) wrong.set("announced", "Enter the part of the failures that the warning comes before");
  const rate = rateOf(asked.texts.get("rate"));
  if (rate === undefined && values.mtbf === null && !wrong.has("mtbf")) wrong.set("mtbf", "Enter the time between two failures of the job, or choose a rate");
  const strategies = asked.strategies.map((each, place) => attempt(`strategy-${place}`, () => {
    checkName(each, asked.strategies);
    return numbersOfStrategy(each, first.strategies, origin, values);
  }));
  return { values, rate, strategies, wrong, asked, origin };
}

/** The answer tells strategies apart by their names. */
function checkName({ name }, strategies) {
  if (name === "") throw new Wrong("Enter a name");
  const same = strategies.filter((each) => each.name === name).length;
  if (same > 1) throw new Wrong(`${same} strategies have this name: give each its own`);
}

function numbersOfStrategy(each, firsts, origin, { state, bandwidth }) {
  const place = firsts.findIndex(({ name }) => name === each.name);
  const known = origin.strategies[place];
  const before = known === undefined ? {} : firsts[place];
  const written = (text) => {
    if (text !== "") return readTime(text);
    if (state && bandwidth) return state / bandwidth;
    throw new Wrong("Enter a time, or state and bandwidth");
  };
  const isAsync = each.kind === "async";
  const isMeasured = known !== undefined && ["kind", "stall", "then"].every((name) => each[name] === before[name]);
  const stall = known !== undefined && each.stall === before.stall ? known.stall : written(each.stall);
  if (isMeasured) return { name: each.name, known, stall, durable: known.durable, slowdown: known.slowdown, isMeasured };
  const durable = isAsync ? stall + written(each.then) : stall;
  return { name: each.name, known, stall, durable, slowdown: isAsync && known ? known.slowdown : 0, isMeasured };
}

/** By what each measured cost of a strategy grows at another number of GPUs, as src/ckptbench/decide/projection.py has it. */
const growthOf = ({ growth }, ranks, gpus) => Object.fromEntries(Object.entries(growth?.fit ?? {}).map(
  ([name, numbers]) => [name, formulas.times_as_much(formulas.fitted_s(ranks, ...numbers), formulas.fitted_s(gpus, ...numbers))]));

/** The time limit of a job. None where the whole training is done in one. */
const limitOf = ({ limit, step }, downS, trainingSteps) => (limit !== null && (trainingSteps ?? Infinity) * step + downS > limit ? limit : null);

/** Mean GPU-hours between failures, with the ends of their interval. Preemptions and time limits of a log end a job as often whatever its GPUs. */
const hoursOf = ({ hours, of_jobs: ends }, gpus) => hours.map((each) => each * (ends ? formulas.of_jobs(gpus, ends.gpus, ends.number, ends.of) : 1));

/** What the formulas take: first at the failure rate that is likeliest, then at the ends of its interval if it has one. */
function casesOf({ values, rate, origin }, strategy) {
  const { survivable, replacement_s: replacementS, gpus_per_node: perNode } = start;
  const { known } = strategy;
  const { gpus } = values;
  const survived = gpus > 1 ? (values.survived ?? known?.survived ?? 0) * survivable : 0;
  const growth = known === undefined || gpus === origin.ranks ? {} : growthOf(known, origin.ranks, gpus);
  // What was entered is of this number of GPUs.
  const grown = (cost, name, measured) => cost * (cost === measured ? growth[name] ?? 1 : 1);
  const down = values.restart === origin.restart ? (known ?? origin.strategies[0]).down : values.restart;
  const downS = grown(down, "down_s", known?.down);
  const stallS = grown(strategy.stall, "stall_s", known?.stall);
  const durableS = grown(strategy.durable, "durable_s", known?.durable);
  const slowdownS = grown(strategy.slowdown, "slowdown_s", known?.slowdown);
  // The share of what is lost is not done until it has been replaced: of a node, or where there is only one, of a GPU.
  const missing = origin.replaces === false ? (replacementS * (gpus > perNode ? perNode : 1)) / gpus : 0;
  // Of the failures that are left, those that take a node take its versions.
  const needed = known?.copied || survived === 1 ? 0 : (survivable - survived) / (1 - survived);
  const globalS = grown(known?.globalTier ?? 0, "shared_durable_s", known?.globalTier);
  const one = {
    stepS: values.step * (known?.slower ?? 1),
    slower: (origin.slower ?? 1) * (known?.slower ?? 1),
    saving: { stallS, durableS: Math.max(durableS, stallS), slowdownS },
    recovering: { downS, survived, pauseS: (values.pause ?? known?.pause ?? 0) + missing, announced: values.announced ?? 0, noticeS: Math.max((values.warning ?? 0) - values.step * (known?.slower ?? 1), 0) },
    globalTier: known?.every > 1 ? { every: known.every, needed, durableS: globalS, downS } : { every: 1, needed: 0, durableS: 0, downS: 0 },
    limitS: limitOf(values, downS, origin.training_steps),
  };
  const rates = values.mtbf === null ? hoursOf(rate, gpus).map((hours) => gpus / (hours * SECONDS_PER_HOUR)) : [1 / values.mtbf];
  return rates.map((failuresPerS) => ({ ...one, failuresPerS }));
}

/** The estimate, and the least and the largest of it, of those at the ends, and of others. */
function uncertain(values, ...others) {
  const all = [...values, ...others.flat()];
  const [value, lo, hi] = [values[0], Math.min(...all), Math.max(...all)];
  return values.length > 1 || lo < hi ? { value, lo, hi } : { value, lo: NaN, hi: NaN };
}

const lostOf = (useful) => uncertain(...[0, 1, 2].map((phase) => useful.map((each) => 1 - each[phase])));

/** With cases at more rates between the ends, as src/ckptbench/cli/case.py has them: what is saved may be least or most there. */
function withBetween([estimate, ...ends]) {
  if (ends.length === 0) return [estimate];
  const [first, last] = ends.map(({ failuresPerS }) => failuresPerS);
  const inside = Array.from({ length: start.between }, (_, place) => first * (last / first) ** ((place + 1) / (start.between + 1)));
  return [estimate, ...ends, ...inside.map((failuresPerS) => ({ ...estimate, failuresPerS }))];
}

/** GPU-hours a day. The limit falls elsewhere in the periods of each. */
function savedOf(cases, casesOfNow, steps, { gpus }) {
  const pairs = withBetween(cases).map((one, place) => [byPhase(one, best(one).steps), byPhase(withBetween(casesOfNow)[place], steps)]);
  return uncertain(...[[0, 0], [2, 1], [1, 2]].map(([own, other]) => pairs.map(([useful, now]) => HOURS_PER_DAY * gpus * (useful[own] - now[other]))));
}

/** Strategies side by side, and what the interval in use loses, if one is given: it is that of the first one. */
function answer(numbers) {
  const bound = numbers.values.mtbf === null && numbers.rate.bound;
  const ofAll = numbers.strategies.map((strategy) => casesOf(numbers, strategy));
  const [estimate] = ofAll[0];
  const steps = numbers.values.now?.(estimate.stepS);
  const useful = steps && ofAll[0].map((one) => byPhase(one, steps));
  return {
    bound,
    now: useful ? { steps, seconds: steps * estimate.stepS, lost: lostOf(useful), waits: waitsAt(estimate, steps) } : null,
    strategies: ofAll.map((cases, place) => {
      const found = cases.map(best);
      return {
        name: numbers.strategies[place].name,
        isLeast: numbers.strategies[place].isMeasured && numbers.strategies[place].known.least,
        estimate: cases[0],
        cases,
        steps: uncertain(found.map((each) => each.steps)),
        seconds: uncertain(found.map((each) => each.steps * cases[0].stepS)),
        lost: lostOf(cases.map((one, at) => byPhase(one, found[at].steps))),
        saved: useful && savedOf(cases, ofAll[0], steps, numbers.values),
        fine: fine(cases[0], found[0]),
        bound,
        waits: waitsAt(cases[0], found[0].steps),
      };
    }),
  };
}

/** By the formulas of others, who know of a checkpoint the stall alone, and no failures that survivors go on from. */
function byOthers({ failuresPerS, recovering, saving, stepS }) {
  const striking = failuresPerS * (1 - recovering.survived);
  const found = {
    "Young 1974": formulas.young_s(saving.stallS, striking),
    "Daly 2006": formulas.daly_s(saving.stallS, striking),
    "Saxena et al. 2024": formulas.saxena_s(saving.stallS, recovering.downS, striking),
  };
  return Object.entries(found).map(([name, seconds]) => ({ name, seconds, steps: Math.max(1, Math.round(seconds / stepS)) }));
}
