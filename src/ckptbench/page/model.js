"use strict";
// The formulas of src/ckptbench/decide/model.py, under the same names and with the same steps, for single numbers.
// Sources and derivations are there. tests/study/test_page_in_browser.py compares both over random inputs.

const WITHIN = 0.01;
const LONGEST = 50;
const GRID = 200;
const HALVINGS = 60;
const GOLDEN = (Math.sqrt(5) - 1) / 2;

/** (e^x - 1) / x, and 1 for 0. */
function relativeGrowth(x) {
  return x === 0 ? 1 : Math.expm1(x) / x;
}

/** From the start of a save to the start of the next one. */
function periodS(saving, intervalS) {
  return Math.max(saving.stallS + intervalS + saving.slowdownS, saving.durableS);
}

/** How much longer than a period the first version after a failure takes. */
function lagS(saving, intervalS) {
  return intervalS + saving.durableS - periodS(saving, intervalS);
}

function recoveryS(rate, striking, downS, lag) {
  const down = downS * relativeGrowth(rate * downS);
  const afterwards = lag * relativeGrowth(striking * lag);
  return down * (1 + striking * afterwards) + afterwards;
}

function meanPeriodS(intervalS, saving, far) {
  const both = { ...saving, durableS: Math.max(saving.durableS, far.durableS) };
  return ((far.every - 1) * periodS(saving, intervalS) + periodS(both, intervalS)) / far.every;
}

function twoLevelsS(period, rate, far, nearS, farS) {
  const fails = -Math.expm1(-rate * period);
  const lasting = 1 - fails * (1 - far.needed);
  const untilS = period * relativeGrowth(-rate * period);
  const fromFarS = far.needed > 0 ? far.needed * farS : 0;
  const fromNearS = far.needed < 1 ? (1 - far.needed) * nearS : 0;
  const backS = fails > 0 ? fails * (fromNearS + fromFarS) : 0;
  const alone = (untilS + backS) / lasting;
  const fallsBack = lasting > 0 ? Math.min((fails * far.needed) / lasting, 1) : 0;
  const periods = fallsBack === 0 ? far.every : Math.expm1(-far.every * Math.log1p(-fallsBack)) / fallsBack;
  return (alone * periods) / far.every;
}

/** The useful part of the time. saving: {stallS, durableS, slowdownS}; recovering: {downS, survived, pauseS}; far: {every, needed, durableS,
 * downS}, or null where there is one level. */
function goodput(intervalS, saving, recovering, failuresPerS, far = null) {
  const paused = failuresPerS * recovering.survived * recovering.pauseS;
  if (paused >= 1) return 0;
  const stretch = 1 / (1 - paused);
  const striking = failuresPerS * (1 - recovering.survived);
  const nearS = recoveryS(failuresPerS, striking, recovering.downS, lagS(saving, intervalS));
  if (far !== null) {
    const both = { ...saving, durableS: Math.max(saving.durableS, far.durableS) };
    const farS = recoveryS(failuresPerS, striking, far.downS, lagS(both, intervalS));
    return intervalS / twoLevelsS(stretch * meanPeriodS(intervalS, saving, far), striking, far, nearS, farS);
  }
  const undisturbedS = stretch * periodS(saving, intervalS);
  const backS = striking > 0 ? striking * nearS : 0;
  return intervalS / (undisturbedS * relativeGrowth(striking * undisturbedS) * (1 + backS));
}

function youngS(saving, failuresPerS) {
  return Math.sqrt(2 * saving.stallS / failuresPerS);
}

function dalyS(saving, failuresPerS) {
  const betweenS = 1 / failuresPerS;
  const ratio = saving.stallS / (2 * betweenS);
  if (ratio >= 1) return betweenS;
  const series = Math.sqrt(2 * saving.stallS * betweenS) * (1 + Math.sqrt(ratio) / 3 + ratio / 9);
  return series - saving.stallS;
}

function saxenaS(saving, recovering, failuresPerS) {
  const betweenS = 1 / failuresPerS;
  return Math.sqrt(2 * (betweenS + recovering.downS) * saving.stallS + saving.stallS ** 2);
}

/** The best interval of at least `leastS`, and its goodput. */
function best(saving, recovering, failuresPerS, leastS, far = null) {
  const { of, first, last } = searched(saving, recovering, failuresPerS, leastS, far);
  const step = (last - first) / (GRID - 1);
  const tried = (place) => (place === GRID - 1 ? last : first + step * place);
  let at = 0;
  let highest = -Infinity;
  for (let place = 0; place < GRID; place += 1) {
    const value = of(tried(place));
    if (value > highest) [at, highest] = [place, value];
  }
  const found = highestBetween(of, tried(Math.max(at - 1, 0)), tried(Math.min(at + 1, GRID - 1)));
  return { intervalS: Math.exp(found), goodput: of(found) };
}

/** The shortest and the longest interval with a goodput within WITHIN of the best. */
function flatAround(found, saving, recovering, failuresPerS, leastS, far = null) {
  const { of, first, last } = searched(saving, recovering, failuresPerS, leastS, far);
  const enough = (1 - WITHIN) * found.goodput;
  const inside = Math.log(found.intervalS);
  return {
    shortestS: Math.exp(crossing(of, enough, first, inside)),
    longestS: Math.exp(crossing(of, enough, last, inside)),
  };
}

function searched(saving, recovering, failuresPerS, leastS, far) {
  const first = Math.log(leastS);
  return {
    of: (logarithm) => goodput(Math.exp(logarithm), saving, recovering, failuresPerS, far),
    first,
    last: Math.max(first, Math.log(LONGEST / failuresPerS)),
  };
}

/** Where the function is highest, by golden section. */
function highestBetween(of, left, right) {
  for (let turn = 0; turn < HALVINGS; turn += 1) {
    const width = GOLDEN * (right - left);
    if (of(right - width) >= of(left + width)) right = left + width;
    else left = right - width;
  }
  return (left + right) / 2;
}

/** The point nearest to `outside` at which the function is at least `limit`, by bisection. */
function crossing(of, limit, outside, inside) {
  let nearest = outside;
  for (let turn = 0; turn < HALVINGS; turn += 1) {
    if (of(nearest) >= limit) inside = nearest;
    else outside = nearest;
    nearest = (inside + outside) / 2;
  }
  return inside;
}
