"use strict";
// From what the user asks to the numbers of the answer. Nothing here touches the page.

const COSTS = ["step_s", "stall_s", "slowdown_s", "durable_s", "shared_durable_s", "down_s", "pause_s"];
const STORED = ["stall_s", "slowdown_s", "durable_s", "shared_durable_s"];
const WAITS_FROM = 0.8; // A stall of at least this part of the durable time is taken to wait for the write.
const LOWEST = 2.5;
const HIGHEST = 97.5;
const POINTS = 121;
const BEYOND = 10;
const BYTES_PER_GB = 1e9;
const SECONDS_PER_HOUR = 3600;
const SECONDS_PER_MINUTE = 60;

/** The draws of all uncertain numbers come from Python as the bytes of doubles. */
function unpack(study) {
  const draws = study.draws.map((text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Float64Array(bytes.buffer);
  });
  return { ...study, draws };
}

/** The storage that the study saw: the bytes of a version, and how many of them became durable in a second. */
function seenStorage(row) {
  const gigabytes = row.bytes === null ? null : row.bytes / BYTES_PER_GB;
  const durable = row.costs.shared_durable_s.value;
  return { gigabytes, gigabytes_per_s: gigabytes === null || !(durable > 0) ? null : gigabytes / durable };
}

/** What state size and bandwidth make of a checkpoint: no measurement, but a projection of one. The bandwidth is that of the shared level:
 * nearer ones take as much longer as the state is larger. Null if it was not asked for, or not enough is known for it. */
function projectedStorage(row, asked) {
  if (asked.gigabytes === undefined && asked.gigabytes_per_s === undefined) return null;
  const seen = seenStorage(row);
  const size = asked.gigabytes ?? seen.gigabytes;
  const bandwidth = asked.gigabytes_per_s ?? seen.gigabytes_per_s;
  if (size === null || bandwidth === null) return null;
  const { stall_s: stall, slowdown_s: slowdown, durable_s: durable, shared_durable_s: shared } = row.costs;
  const writing = size / bandwidth;
  const waits = stall.value >= WAITS_FROM * durable.value;
  const larger = seen.gigabytes === null ? 1 : size / seen.gigabytes;
  const near = row.shared_every > 1 ? durable.value * larger : writing;
  return {
    durable_s: near,
    shared_durable_s: writing,
    stall_s: waits ? near : stall.value * larger,
    slowdown_s: shared.value > 0 ? slowdown.value * (writing / shared.value) : slowdown.value,
  };
}

function drawnOf(study, { value, draws }) {
  return { value, draws: draws === null ? null : study.draws[draws] };
}

/** Each cost: its value, its draws (null if it is exact), and how it is known: `study`, `projected` or `yours`. */
function costsOf(study, row, asked) {
  const projected = projectedStorage(row, asked);
  return Object.fromEntries(COSTS.map((name) => {
    if (asked[name] !== undefined) return [name, { value: asked[name], draws: null, known: "yours" }];
    if (projected && STORED.includes(name)) return [name, { value: projected[name], draws: null, known: "projected" }];
    return [name, { ...drawnOf(study, row.costs[name]), known: "study" }];
  }));
}

/** Everything that the formulas take, for each draw; the first is the estimate. */
function casesOf(study, row, asked) {
  const costs = costsOf(study, row, asked);
  const rate = asked.mean_gpu_hours === undefined ? study.rates.find((each) => each.name === asked.rate) : null;
  const hours = rate
    ? { value: rate.mean_gpu_hours, draws: rate.draws === null ? null : study.draws[rate.draws] }
    : { value: asked.mean_gpu_hours, draws: null };
  const ofOneNode = asked.survivable ?? study.choices.survivable;
  const survivals = asked.survived === undefined ? drawnOf(study, row.survived) : { value: asked.survived, draws: null };
  const replacement = (asked.replacement_minutes ?? study.choices.replacement_minutes) * SECONDS_PER_MINUTE;
  // The share of the lost GPU is not done until another one has come.
  const missing = row.replaces ? 0 : replacement / asked.gpus;
  const slower = drawnOf(study, row.slower);
  const certain = [hours, slower, survivals, ...Object.values(costs)].every(({ draws }) => draws === null);
  const at = ({ value, draws }, place) => (place === 0 || draws === null ? value : draws[place - 1]);
  return Array.from({ length: certain ? 1 : 1 + study.number_of_draws }, (_, place) => {
    const [step, stall, slowdown, durable, shared, down, pause] = COSTS.map((name) => at(costs[name], place));
    const survived = asked.gpus > 1 ? at(survivals, place) * ofOneNode : 0;
    // Of the failures that are left, those that take a node take its versions.
    const needed = row.copied || survived === 1 ? 0 : (ofOneNode - survived) / (1 - survived);
    return {
      stepS: step * at(slower, place),
      slower: at(slower, place),
      saving: { stallS: stall, slowdownS: slowdown, durableS: Math.max(durable, stall) },
      recovering: { downS: down, survived, pauseS: pause + missing },
      far: row.shared_every > 1 ? { every: row.shared_every, needed, durableS: shared, downS: down } : null,
      failuresPerS: asked.gpus / (at(hours, place) * SECONDS_PER_HOUR),
    };
  });
}

/** The percentile of numbers in order, with linear interpolation. */
function percentile(ordered, percent) {
  const place = (percent / 100) * (ordered.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, ordered.length - 1);
  return ordered[below] + (ordered[above] - ordered[below]) * (place - below);
}

/** The estimate, and the ends of its 95 % interval. */
function uncertain(values) {
  if (values.length === 1) return { value: values[0], lo: values[0], hi: values[0] };
  const ordered = Float64Array.from(values.slice(1)).sort();
  return { value: values[0], lo: percentile(ordered, LOWEST), hi: percentile(ordered, HIGHEST) };
}

function goodputAt(one, intervalS) {
  return goodput(intervalS, one.saving, one.recovering, one.failuresPerS, one.far) / one.slower;
}

function bestOf(one) {
  const found = best(one.saving, one.recovering, one.failuresPerS, one.stepS, one.far);
  return { intervalS: found.intervalS, goodput: found.goodput / one.slower };
}

/** The answer in numbers. Intervals are in seconds of useful time. */
function answer(study, row, asked) {
  const cases = casesOf(study, row, asked);
  const [estimate] = cases;
  const found = cases.map(bestOf);
  const ofSteps = { ...found[0], goodput: found[0].goodput * estimate.slower };
  const flat = flatAround(ofSteps, estimate.saving, estimate.recovering, estimate.failuresPerS, estimate.stepS, estimate.far);
  const every = (number) => uncertain(cases.map((one) => 1 - goodputAt(one, number * one.stepS)));
  // They know no other failures than those after which all go back to a version.
  const strikingPerS = estimate.failuresPerS * (1 - estimate.recovering.survived);
  const formulas = [
    ["young", youngS(estimate.saving, strikingPerS)],
    ["daly", dalyS(estimate.saving, strikingPerS)],
    ["saxena", saxenaS(estimate.saving, estimate.recovering, strikingPerS)],
  ];
  return {
    cases,
    stepS: estimate.stepS,
    betweenS: uncertain(cases.map((one) => 1 / one.failuresPerS)),
    best: {
      intervalS: uncertain(found.map((each) => each.intervalS)),
      steps: uncertain(found.map((each, place) => Math.max(Math.round(each.intervalS / cases[place].stepS), 1))),
      lost: uncertain(found.map((each) => 1 - each.goodput)),
    },
    flat,
    chosen: { steps: asked.interval, intervalS: asked.interval * estimate.stepS, lost: every(asked.interval) },
    epoch: { steps: row.steps_per_epoch, lost: every(row.steps_per_epoch) },
    formulas: formulas.map(([name, intervalS]) => {
      const possibleS = Math.max(intervalS, estimate.stepS);
      return { name, intervalS, possibleS, lost: 1 - goodputAt(estimate, possibleS) };
    }),
  };
}

/** Points of the curve, around the range in which the interval hardly matters, and as far as the interval that was chosen. */
function curve(answered) {
  const { cases, flat, chosen, stepS } = answered;
  const first = Math.min(Math.max(stepS, flat.shortestS / BEYOND), chosen.intervalS);
  const last = Math.max(flat.longestS * BEYOND, chosen.intervalS);
  return Array.from({ length: POINTS }, (_, place) => {
    const intervalS = first * (last / first) ** (place / (POINTS - 1));
    return { intervalS, goodput: uncertain(cases.map((one) => goodputAt(one, intervalS))) };
  });
}

/** The best interval of every strategy and recovery of a setup, by estimates alone, the best first. */
function compared(study, rows, asked) {
  return rows
    .map((row) => {
      const [one] = casesOf(study, row, asked);
      const found = bestOf(one);
      return { row, intervalS: found.intervalS, steps: Math.max(Math.round(found.intervalS / one.stepS), 1), lost: 1 - found.goodput };
    })
    .sort((one, other) => one.lost - other.lost);
}
