"use strict";
// The best whole number of steps, and those that are fine. The formulas are generated from src/ckptbench/decide/formulas.py.

const GOLDEN = (Math.sqrt(5) - 1) / 2;

/** The useful part of the time where a checkpoint is taken every so many steps. `one` has the numbers of a strategy. */
function usefulAt(one, steps) {
  const { saving, recovering, globalTier } = one;
  return limitedAt(one, steps, formulas.goodput(
    steps * one.stepS, one.failuresPerS, saving.stallS, saving.durableS, saving.slowdownS, recovering.downS, recovering.survived, recovering.pauseS,
    globalTier.every, globalTier.needed, 0, globalTier.durableS, 0, globalTier.downS, inTime(one),
  ) / one.slower);
}

/** How long a save at a warning takes until it is durable at all levels. */
const needsS = ({ saving, globalTier }) => Math.max(saving.durableS, globalTier.durableS);

/** The part of all failures that lose no work. */
const inTime = (one) => formulas.in_time(one.recovering.announced, one.recovering.noticeS, needsS(one));

/** With the time limit of a job, after which the versions of the second level alone are left, if there is one: as src/ckptbench/decide/costs.py has it. */
function limitedAt({ stepS, failuresPerS, saving: { stallS, durableS, slowdownS }, recovering: { downS, survived }, globalTier, limitS = null, since = 0.5 }, steps, useful) {
  if (limitS === null) return useful;
  const { every } = globalTier;
  const durable = (every - 1) * (stallS + slowdownS) + Math.max(durableS, globalTier.durableS);
  return formulas.limited(useful, every * steps * stepS, failuresPerS * (1 - survived), every * stallS, durable, every * slowdownS, downS, limitS, since);
}

/** The same on average, where the limit falls just after a version is durable, and just before: as src/ckptbench/decide/model.py has it. */
const byPhase = (one, steps) => ((one.limitS ?? null) === null ? Array(3).fill(usefulAt(one, steps)) : [0.5, 0, 1].map((since) => usefulAt({ ...one, since }, steps)));

/** A round number of steps that is fine, or a multiple of what the program asks for, as src/ckptbench/decide/model.py has it. */
function rounded(steps, { from, to }, multipleOf = null) {
  const times = (unit) => Math.floor((2 * steps + unit) / (2 * unit));
  const near = [1, 2].map((digits) => {
    const unit = 10 ** Math.max(String(steps).length - digits, 0);
    return times(unit) * unit;
  }).filter((each) => Math.abs(each - steps) <= start.round * steps);
  const multiple = multipleOf === null ? [] : [Math.max(1, times(multipleOf)) * multipleOf];
  return [...multiple, ...near].find((each) => from <= each && each <= to) ?? steps;
}

/** How long each save waits for the one before, which is still being written. */
function waitsAt({ stepS, saving: { stallS, durableS, slowdownS } }, steps) {
  return formulas.period_s(steps * stepS, stallS, durableS, slowdownS) - (steps * stepS + stallS + slowdownS);
}

/** The whole number of steps with the highest goodput, which rises up to it and falls after it: by golden section of the logarithm. */
function best(one) {
  let [left, right] = [1, longest(one)];
  while (right - left > 2) {
    const part = (right / left) ** (1 - GOLDEN);
    const before = Math.min(Math.max(Math.round(left * part), left + 1), right - 2);
    const after = Math.min(Math.max(Math.round(right / part), before + 1), right - 1);
    if (usefulAt(one, before) >= usefulAt(one, after)) right = after;
    else left = before;
  }
  const last = Array.from({ length: right - left + 1 }, (_, place) => ({ steps: left + place, useful: usefulAt(one, left + place) }));
  return last.reduce((found, each) => (each.useful > found.useful ? each : found));
}

/** The goodput that is left where nothing but recoveries takes time. */
function restartsAlone(one) {
  const { failuresPerS, recovering, globalTier, slower, limitS = null } = one;
  const useful = formulas.restarts_alone(failuresPerS, recovering.downS, recovering.survived, recovering.pauseS, globalTier.needed, globalTier.downS, inTime(one), needsS(one)) / slower;
  return limitS === null ? useful : useful * formulas.kept_by_limit(Math.max(limitS - recovering.downS, 0), failuresPerS * (1 - recovering.survived), limitS);
}

/** The shortest and the longest interval that are fine: NaN where the best one loses more than half. */
function fine(one, found) {
  if (!(found.useful >= formulas.LEAST_FINE)) return { from: NaN, to: NaN };
  const enough = formulas.fine_goodput(found.useful, restartsAlone(one));
  const isFine = (steps) => usefulAt(one, steps) >= enough;
  return { from: nearest(1, found.steps, isFine), to: -nearest(-longest(one), -found.steps, (steps) => isFine(-steps)) };
}

/** Steps of the longest interval that is tried. */
function longest(one) {
  const losing = (1 - inTime(one)) * (1 - one.recovering.survived);
  const steps = Math.floor(start.longest / (one.failuresPerS * (losing > 0 ? losing : 1)) / one.stepS);
  return Math.min(Math.max(steps, 1), start.most_steps);
}

/** The first whole number that passes, where all from it to `last` do. */
function nearest(first, last, passes) {
  while (first < last) {
    const middle = Math.floor((first + last) / 2);
    if (passes(middle)) last = middle;
    else first = middle + 1;
  }
  return last;
}
