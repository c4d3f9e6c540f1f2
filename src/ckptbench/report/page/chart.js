"use strict";
// The chart: what each interval loses, a line for each strategy.

const TIMES = new Map(["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 day", "10 days", "100 days", "1000 days", "10000 days"].map((text) => [readTime(text), text]));
const LOSSES = Array.from({ length: 36 }, (_, place) => [1, 2, 5][place % 3] * 10 ** (Math.floor(place / 3) - 12));
const MANY = 8; // Where there are more losses to mark, only powers of ten are.
const COLORS = 6; // of page.css, which has others where it is dark
const DASHES = [[1, 0], [6, 3], [2, 2]];
const POINTS = 100;
const BEYOND = 4; // The axis goes so many times beyond the fine ranges.
const SHOWN = 5; // Losses up to so many times the largest of interest are drawn.
let view = null;

const lineOf = (place) => ({ color: `var(--line-${place % COLORS})`, dash: DASHES[Math.floor(place / COLORS) % DASHES.length] });

async function makeChart() {
  vega.expressionFunction("time", (seconds) => TIMES.get(seconds));
  vega.expressionFunction("loss", (part) => `${Number((100 * part).toPrecision(1))} %`);
  view = new vega.View(vega.parse(JSON.parse(byId("chart-spec").textContent)), { renderer: "svg", container: "#chart" });
  await view.runAsync();
}

function showChart({ now, strategies }) {
  const reached = [...(now ? [now.seconds] : []), ...strategies.flatMap(({ estimate, steps, fine: { from, to } }) => [(from || steps.value) * estimate.stepS / BEYOND, (to || steps.value) * estimate.stepS * BEYOND])];
  const shortest = Math.max(Math.min(...reached), Math.min(...strategies.map(({ estimate }) => estimate.stepS)));
  const longest = Math.max(...reached, shortest * BEYOND);
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
  const bests = strategies.map(({ seconds, lost }, place) => ({ seconds: seconds.value, lost: lost.value, ...lineOf(place) }));
  const data = {
    band: points.filter(({ lo, hi }) => lo < hi),
    now: now ? [{ seconds: now.seconds }] : [],
    fine: points.filter(({ isFine }) => isFine),
    lines: points,
    best: bests,
  };
  const ends = { shortest, longest, lowest: Math.max(lowest / 2, 1e-9), highest: Math.min(SHOWN * highest, 1) };
  const losses = LOSSES.filter((each) => ends.lowest <= each && each <= ends.highest);
  const marks = {
    times: [...TIMES.keys()].filter((each) => shortest <= each && each <= longest),
    losses: losses.length > MANY ? losses.filter((each) => Number.isInteger(Number(Math.log10(each).toFixed(9)))) : losses,
  };
  byId("shaded").hidden = data.band.length === 0;
  for (const [name, value] of Object.entries({ ...ends, ...marks })) view.signal(name, value);
  for (const [name, values] of Object.entries(data)) view.data(name, values);
  view.resize().run(); // The labels may be wider now: the axes get the room that they need.
}
