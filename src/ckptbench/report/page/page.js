"use strict";
// The page: fields -> a case -> its answer -> sentence, table and chart. The case is in the address, after the #.

/** A case without numbers, which has a strategy all the same. */
const EMPTY = { texts: new Map(), strategies: [{ kind: "blocking", name: "blocking", stall: "", then: "" }] };
const HOME = start.cases[0];
let origin = HOME;
/** The texts of the case. */
let asked = readPairs(origin.pairs);

/** A number as text, beside the number with all its digits and the ends of its interval. */
function data(known, text) {
  const made = element("data", { value: String(known.value) });
  made.replaceChildren(...text.split(/ (?=\[)/).map((part, place) => (place === 0 ? part : element("small", { textContent: part }))));
  Object.assign(made.dataset, { lo: known.lo ?? NaN, hi: known.hi ?? NaN });
  return made;
}

function tableRow(cells, heads, properties) {
  return element("tr", properties, ...cells.map((cell, place) => {
    const made = element(place === 0 ? "th" : "td", place === 0 ? { scope: "row" } : {}, ...[cell].flat());
    made.dataset.head = heads[place]?.textContent ?? "";
    return made;
  }));
}

function showTable(id, rows) {
  const heads = byId(id).tHead.rows[0].cells;
  byId(id).tBodies[0].replaceChildren(...rows.map(([cells, properties]) => tableRow(cells, heads, properties)));
}

function swatch(place) {
  const { color, dash } = lineOf(place);
  const made = element("span", { className: "swatch" });
  made.innerHTML = `<svg viewBox="0 0 24 8" aria-hidden="true"><path d="M0 4H24" style="stroke:${color};stroke-width:3;stroke-dasharray:${dash}"/></svg>`;
  return made;
}

function showAnswer(numbers) {
  const answered = answer(numbers);
  const { bound, now, strategies } = answered;
  const lowest = strategies.reduce((found, each) => (each.lost.value < found.lost.value ? each : found));
  const [known, words_] = standing(numbers);
  byId("known").dataset.known = known;
  byId("known").textContent = kept(words_);
  byId("sentence").textContent = kept(sentence(answered, lowest) + limitSaid(numbers, lowest) + warningSaid(numbers, answered) + moneyOf(answered, lowest, numbers.values));
  const helps = isUseful(lowest);
  byId("save-steps").textContent = helps && !outlasts(lowest) ? setting(answered, lowest) : "";
  const steady = (value) => ({ value });
  const others = start.other_rates.map((factor) => best({ ...lowest.estimate, failuresPerS: factor * lowest.estimate.failuresPerS }).steps);
  byId("other-rates").textContent = helps ? kept(`A third of the failures: ${others.map((steps) => counted(steps, "step")).join(". Three times as many: ")}.`) : "";
  const rows = strategies.map(({ name, seconds, steps, lost: least, fine: { from, to }, saved, estimate }, place) => [isUseful(strategies[place]) ? [
    [swatch(place), name],
    data(seconds, atLeast(bound) + amount(seconds, unitOfTime(seconds.value))),
    data(steps, atLeast(bound) + (tells(steps) ? whole(steps.value) : amount(steps))),
    data(least, loses(strategies[place], least)),
    bound ? "" : from ? span(from * estimate.stepS, to * estimate.stepS, unitOfTime(to * estimate.stepS)) : "none",
    saved ? data(saved, saves(strategies[place], now)) : "",
  ] : [[swatch(place), name], "none helps", "", data(least, lost(least)), "", ""], { className: strategies[place] === lowest ? "lowest" : "" }]);
  const ofNow = now && [`now: ${strategies[0].name}`, data(steady(now.seconds), duration(now.seconds)), data(steady(now.steps), whole(now.steps)), data(now.lost, loses(strategies[0], now.lost)), "", ""];
  showTable("strategies-compared", [...(now ? [[ofNow, { className: "now" }]] : []), ...rows]);
  showTable("others", byOthers(lowest.estimate).map(({ name, seconds, steps }) => {
    const least = steady(1 - usefulAt(lowest.estimate, steps));
    return [[name, data(steady(seconds), duration(seconds)), data(steady(steps), whole(steps)), data(least, lost(least))], {}];
  }));
  byId("lowest").textContent = lowest.name;
  showChart(answered);
}

function show() {
  const numbers = numbersOf(asked, origin);
  byId("copied").textContent = "";
  showFields(numbers);
  byId("results").classList.toggle("is-old", numbers.wrong.size > 0);
  if (numbers.wrong.size > 0) {
    byId("known").dataset.known = "";
    byId("known").textContent = "Correct what is marked.";
    return;
  }
  showAnswer(numbers);
  // Of a dropped file another page knows nothing: there its numbers are the reader's own.
  const known = origin.isDropped ? start.cases.find(({ how, isDropped }) => how === "" && !isDropped) : origin;
  const pairs = isStart() && !origin.isDropped ? [] : writePairs(asked);
  const from = known === HOME ? [] : [["from", known.title]];
  const text = new URLSearchParams([...from, ...pairs]).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
  writePrinted(numbers);
}

/** A link to a case of one's own says all of it: no number of the example is taken for the reader's. */
function begin(from, pairs) {
  [origin, readAt] = [from, null];
  const own = readPairs(pairs);
  const isOwn = from.how === "" && own.texts.size + own.strategies.length > 0;
  asked = readPairs(pairs, isOwn ? EMPTY : startOf(origin));
  fill();
}

function readAddress() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))];
  const title = pairs.find(([name]) => name === "from")?.[1];
  begin(start.cases.find((each) => each.title === title) ?? HOME, pairs);
}

makeFields();
makeShare();
takeFiles();
window.addEventListener("hashchange", readAddress);
makeChart().then(readAddress);
