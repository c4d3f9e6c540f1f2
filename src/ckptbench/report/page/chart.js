"use strict";
// The chart: what each interval loses, a line for each strategy.

const TIMES = new Map(["1 ms", "10 ms", "100 ms", "1 s", "2 s", "5 s", "10 s", "20 s", "30 s", "1 min", "2 min", "5 min", "10 min", "20 min", "30 min", "1 h", "2 h", "3 h", "6 h", "12 h", "1 day", "2 days", "5 days", "10 days", "30 days", "100 days", "1000 days", "10000 days"].map((text) => [readTime(text), text]));
const LOSSES = Array.from({ length: 72 }, (_, place) => [1, 1.5, 2, 3, 5, 7][place % 6] * 10 ** (Math.floor(place / 6) - 12));
const MARKS = 5; // Of each axis, as far as there are so many.
const COLORS = 6; // of page.css, which has others where it is dark
const DASHES = [[1, 0], [6, 3], [2, 2]];
const POINTS = 100;
const BEYOND = 4; // The axis goes so many times beyond the fine ranges.
const BESIDE = 1.3; // And so many beyond the interval in use, which would lie on an axis.
const SHOWN = 5; // Losses up to so many times the largest of interest are drawn.
let view = null;
/** What it shows: the ends of its axes, and the strategies. */
let charted = null;

const lineOf = (place) => ({ color: `var(--line-${place % COLORS})`, dash: DASHES[Math.floor(place / COLORS) % DASHES.length] });

async function makeChart() {
  vega.expressionFunction("time", (seconds) => TIMES.get(seconds));
  vega.expressionFunction("loss", (part) => `${Number((100 * part).toPrecision(2))} %`);
  view = new vega.View(vega.parse(JSON.parse(byId("chart-spec").textContent)), { renderer: "svg", container: "#chart" });
  await view.runAsync();
  // After the chart itself has been made anew at another width.
  addEventListener("resize", () => setTimeout(label));
  followPointer();
}

/** Those of the numbers that lie about evenly on a logarithmic axis. */
function marks(numbers, from, to) {
  const within = numbers.filter((each) => from <= each && each <= to);
  const wanted = Array.from({ length: MARKS }, (_, place) => from * (to / from) ** ((place + 0.5) / MARKS));
  const distance = (one, other) => Math.abs(Math.log(one / other));
  return [...new Set(wanted.map((each) => within.toSorted((one, other) => distance(one, each) - distance(other, each))[0]))].filter((each) => each !== undefined);
}

function showChart({ now, strategies }) {
  const reached = strategies.flatMap(({ estimate, steps, fine: { from, to } }) => [(from || steps.value) * estimate.stepS / BEYOND, (to || steps.value) * estimate.stepS * BEYOND]);
  const first = Math.max(Math.min(...reached), Math.min(...strategies.map(({ estimate }) => estimate.stepS)));
  const shortest = Math.min(first, (now?.seconds ?? first) / BESIDE);
  const longest = Math.max(...reached, (now?.seconds ?? 0) * BESIDE, shortest * BEYOND);
  const lowest = Math.min(...strategies.map(({ lost }) => lost.value));
  const highest = Math.max(now?.lost.value ?? 0, ...strategies.map(({ lost }) => lost.value));
  const lowestPlace = strategies.findIndex(({ lost }) => lost.value === lowest);
  const along = Array.from({ length: POINTS }, (_, point) => shortest * (longest / shortest) ** (point / (POINTS - 1)));
  // With the ends of the fine range, which may be narrow.
  const drawn = ({ estimate: { stepS }, fine: { from, to } }) => [...along, ...(from ? [from * stepS, to * stepS] : [])].sort((one, other) => one - other);
  const points = strategies.flatMap((strategy, place) => drawn(strategy).map((seconds) => {
    const { estimate, cases, fine: { from, to } } = strategy;
    const all = (place === lowestPlace ? cases : [estimate]).map((one) => Math.max(1 - usefulAt(one, seconds / one.stepS), Number.MIN_VALUE));
    const { value, lo, hi } = uncertain(all);
    return { place, seconds, lost: value, lo, hi, ...lineOf(place), isFine: from * estimate.stepS <= seconds && seconds <= to * estimate.stepS };
  }));
  const bests = strategies.map(({ name, seconds, lost }, place) => ({ name, seconds: seconds.value, lost: lost.value, ...lineOf(place) }));
  const data = {
    band: points.filter(({ lo, hi }) => lo < hi),
    now: now ? [{ seconds: now.seconds }] : [],
    fine: points.filter(({ isFine }) => isFine),
    lines: points,
    best: bests,
    labels: [],
  };
  const ends = { shortest, longest, lowest: Math.max(lowest / 2, 1e-9), highest: Math.min(SHOWN * highest, 1) };
  const axes = { times: marks([...TIMES.keys()], shortest, longest), losses: marks(LOSSES, ends.lowest, ends.highest) };
  byId("shaded").hidden = data.band.length === 0;
  for (const [name, value] of Object.entries({ ...ends, ...axes })) view.signal(name, value);
  for (const [name, values] of Object.entries(data)) view.data(name, values);
  view.resize().run(); // The labels may be wider now: the axes get the room that they need.
  charted = { shortest, longest, now, strategies, bests, points };
  label();
  showLossAt(readAt ?? now?.seconds ?? bests[lowestPlace].seconds);
}
