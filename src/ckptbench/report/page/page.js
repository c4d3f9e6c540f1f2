"use strict";
// The page: fields -> a case -> its answer -> sentence, table and chart. The case is in the address, after the #.

const USUAL = ["1 hour", "1 day"];
const SMALLEST_PART = 1e-5;
/** A case without numbers, which has a strategy all the same. */
const EMPTY = { texts: new Map(), strategies: [{ kind: "blocking", name: "blocking", stall: "", then: "" }] };
let origin = start.cases[0];
/** The texts of the case. */
let asked = readPairs(origin.pairs);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- the fields

function makeFields() {
  for (const holder of document.querySelectorAll("[data-field]")) {
    const name = holder.dataset.field;
    holder.className = "field";
    const input = element("input", { id: name, spellcheck: false, oninput: () => enter(name, input.value) });
    input.setAttribute("aria-describedby", `${name}-wrong ${name}-hint`);
    holder.append(
      element("label", { htmlFor: name, textContent: holder.dataset.label }), input,
      element("p", { className: "wrong", id: `${name}-wrong` }), element("p", { className: "hint", id: `${name}-hint` }),
    );
  }
  byId("from").append(...start.cases.map(({ title }, place) => new Option(title, place)));
  byId("origins").hidden = start.cases.length < 2;
  byId("from").onchange = ({ target }) => begin(start.cases[target.value], []);
  byId("rate").append(new Option("as entered:", ""), ...USUAL.map((time) => new Option(`every ${time}`, time)), ...start.rates.map(({ name, title }) => new Option(title, name)));
  byId("rate").onchange = ({ target: { value } }) => setFailures(value === "" || USUAL.includes(value) ? ["mtbf", value || mtbf()] : ["rate", value]);
  byId("add").onclick = () => changeStrategies([...asked.strategies, { kind: "async", name: newName(), stall: "3s", then: "90s" }]);
  byId("reset").onclick = () => begin(origin, []);
  byId("controls").onsubmit = (event) => event.preventDefault();
}

/** A number was typed. Its field is left as it is. */
function enter(name, text) {
  asked.texts.set(name, text);
  if (name === "mtbf") asked.texts.delete("rate");
  show();
}

function setFailures(pair) {
  asked = readPairs([pair], asked);
  fill();
}

function newName() {
  const taken = new Set(asked.strategies.map(({ name }) => name));
  let place = taken.size + 1;
  while (taken.has(`strategy ${place}`)) place += 1;
  return `strategy ${place}`;
}

function changeStrategies(strategies) {
  asked = { ...asked, strategies };
  fill();
}

/** What a published rate means for this job, as a text. */
function mtbf() {
  const rate = rateOf(asked.texts.get("rate"));
  const gpus = numberOf(asked.texts.get("gpus") ?? "");
  return rate === undefined || !(gpus >= 1) ? "" : duration((rate.hours[0] / gpus) * SECONDS_PER_HOUR);
}

function fill() {
  for (const name of Object.keys(FIELDS)) byId(name).value = asked.texts.get(name) ?? "";
  byId("from").value = start.cases.indexOf(origin);
  byId("strategies").replaceChildren(...asked.strategies.map(rowOf));
  show();
}

function rowOf(strategy, place) {
  const entry = (name, label) => {
    const input = element("input", { value: strategy[name], spellcheck: false, ariaLabel: `${label}, ${strategy.name}`, oninput: () => { strategy[name] = input.value.trim(); show(); } });
    return element("label", { className: `of-${name}`, textContent: label }, input);
  };
  const kinds = element("select", { ariaLabel: `Kind, ${strategy.name}` }, new Option("blocking", "blocking"), new Option("asynchronous", "async"));
  kinds.value = strategy.kind;
  kinds.onchange = () => changeStrategies(asked.strategies.with(place, { ...strategy, kind: kinds.value, then: kinds.value === "async" ? strategy.then || "90s" : "" }));
  const remove = element("button", { type: "button", textContent: "×", title: "Remove", ariaLabel: `Remove ${strategy.name}`, disabled: asked.strategies.length === 1 });
  remove.onclick = () => changeStrategies(asked.strategies.toSpliced(place, 1));
  const row = element("div", { className: "strategy", role: "group", ariaLabel: strategy.name },
    entry("name", "Name"), element("label", { textContent: "Kind" }, kinds), remove, entry("stall", "Stops training for"), entry("then", "Then written for"),
    element("p", { className: "wrong", id: `strategy-${place}-wrong` }), element("p", { className: "hint", id: `strategy-${place}-hint` }));
  row.dataset.kind = strategy.kind;
  return row;
}

function showFields({ wrong, values }) {
  byId("rate").value = asked.texts.get("rate") ?? USUAL.find((time) => time === asked.texts.get("mtbf")) ?? "";
  byId("mtbf").placeholder = mtbf();
  const [survivors] = origin.strategies.filter(({ survived }) => survived > 0);
  byId("survived").placeholder = survivors ? `${plain(100 * survivors.survived)} %` : "";
  byId("pause").placeholder = survivors ? duration(survivors.pause) : "";
  byId("source").textContent = origin.source ?? "";
  for (const name of Object.keys(FIELDS)) {
    byId(name).setAttribute("aria-invalid", wrong.has(name));
    byId(`${name}-wrong`).textContent = wrong.get(name) ?? "";
    const isMeasured = origin[name] && values[name] === origin[name];
    byId(`${name}-hint`).textContent = isMeasured ? `${origin.how_of?.[name] ?? origin.how}: ${duration(values[name])}` : "";
  }
  byId("mtbf-hint").textContent = rateOf(asked.texts.get("rate"))?.source ?? "";
  asked.strategies.forEach((each, place) => {
    byId(`strategy-${place}-wrong`).textContent = wrong.get(`strategy-${place}`) ?? "";
    const known = origin.strategies.find(({ name }) => name === each.name);
    byId(`strategy-${place}-hint`).textContent = known === undefined ? "" : hintOf(known, each.kind);
  });
}

function hintOf({ stall, slowdown, slower: everywhere, every, globalTier, copied }, kind) {
  const slower = kind === "async" && slowdown > 0 ? `; slower steps meanwhile cost ${duration(slowdown)}` : "";
  const levels = every > 1 ? `; one of ${every} also goes to shared storage, in ${duration(globalTier)}${copied ? "" : ", the others are lost with a node"}` : "";
  const always = everywhere > 1 ? `; every step takes ${plain(everywhere)} times as long` : "";
  return `${origin.how}: stops training for ${duration(stall)}${slower}${always}${levels}`;
}

// ---- the answer

/** A number as text, beside the number with all its digits and the ends of its interval. */
function data(known, text) {
  const made = element("data", { value: String(known.value) });
  made.replaceChildren(...text.split(/ (?=\[)/).map((part, place) => (place === 0 ? part : element("small", { textContent: part }))));
  Object.assign(made.dataset, { lo: known.lo ?? NaN, hi: known.hi ?? NaN });
  return made;
}

function lost(known) {
  return !((known.hi > known.lo ? known.hi : known.value) >= SMALLEST_PART) ? `less than ${100 * SMALLEST_PART} %` : percent(known);
}

/** Before numbers from a bound on the failure rate. */
const atLeast = (bound) => (bound ? "at least " : "");
const atMost = (bound) => (bound ? "at most " : "");
/** Of a log that does not tell when its asynchronous saves are finished, losses are larger than these. */
const loses = ({ bound, isLeast }, known) => `${isLeast ? "at least " : atMost(bound)}${lost(known)}`;
/** Where failures may be rarer, a longer interval in use loses less than it seems, and a shorter one still saves too often. */
const saves = ({ bound, saved, steps }, now) => `${bound && now.steps <= steps.value ? atLeast(bound) : atMost(bound)}${saving(saved)}`;
const whole = (steps) => steps.toLocaleString("en-US");

/** Whether anything much gets done at the best interval. */
const isUseful = ({ bound, lost: { value } }) => bound || 1 - value >= start.least_useful;

/** Whether the training of the log is not longer than the best interval. */
const outlasts = ({ steps }) => origin.how !== "" && start.training_steps !== null && steps.value >= start.training_steps;

function sentence({ bound, now, strategies }, lowest) {
  const { name, seconds, steps, lost: least, fine: { from, to } } = lowest;
  if (!isUseful(lowest)) return "Next to nothing gets done at any interval: failures come too fast for these costs.";
  if (outlasts(lowest)) return `With ${name}, no save is needed against failures: the best interval, ${counted(steps.value, "step")}, is not shorter than the training, ${counted(start.training_steps, "step")}. Save at the end, before the time limit.`;
  const unit = unitOfTime(seconds.value);
  const range = tells(seconds) ? "" : ` The best interval may be ${span(seconds.lo, seconds.hi, unit)}: more failures counted on your machine narrow it.`;
  const waits = lowest.waits > 0 ? ` Each save then waits ${duration(lowest.waits)} for the one before, which is still being written.` : "";
  const often = `${bound ? " or less often" : ""}: that loses ${loses(lowest, least)} of the time.${waits}${range}${bound ? " No failure was seen." : ""}`;
  const begin = `With ${name}, take a checkpoint every ${duration(seconds.value)} (${counted(steps.value, "step")})${often}`;
  if (now === null) return begin;
  if (!bound && lowest === strategies[0] && from <= now.steps && now.steps <= to) return `${begin} Every ${duration(now.seconds)}, as now, is fine too.`;
  const why = now.waits > 0 ? `, as each save waits ${duration(now.waits)} for the one before` : "";
  return `${begin} Now, every ${duration(now.seconds)} with ${strategies[0].name}, it loses ${loses(strategies[0], now.lost)}${why}. The change saves ${saves(lowest, now)} GPU-hours a day.`;
}

/** How the answer is known: `measured` or `given`, `projected`, or `yours`. */
function standing({ values, strategies, rate }) {
  if (origin.how === "") return asked.texts.size === readPairs(origin.pairs).texts.size && isStart() ? ["yours", origin.title] : ["yours", "your numbers"];
  if (values.gpus !== origin.ranks) return ["projected", `projected from ${origin.where}${strategies.some(({ known }) => known?.growth) ? "" : ", costs taken as constant"}: not measured`];
  const isOwn = values.step !== origin.step || strategies.some(({ isMeasured }) => !isMeasured) || values.restart !== origin.restart || rate === undefined;
  const restart = origin.how_of.restart;
  if (!isOwn && restart.startsWith("not")) return [origin.how, `${origin.how} at ${origin.where}, but for the restart: ${restart}`];
  return isOwn ? ["yours", `${origin.how} at ${origin.where}, with numbers of yours`] : [origin.how, `${origin.how} at ${origin.where}`];
}

const isStart = () => JSON.stringify(writePairs(asked)) === JSON.stringify(writePairs(readPairs(origin.pairs)));

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

/** To copy: a round number, but not of a bound. No trainer of Hugging Face saves asynchronously, so there is no `save_steps` for that. */
function setting({ bound, steps, fine: range, estimate: { saving } }) {
  const round = bound ? steps.value : rounded(steps.value, range);
  return saving.durableS > saving.stallS ? `every ${counted(round, "step")}` : `save_steps=${round}`;
}

function showAnswer(numbers) {
  const answered = answer(numbers);
  const { bound, now, strategies } = answered;
  const lowest = strategies.reduce((found, each) => (each.lost.value < found.lost.value ? each : found));
  const [known, words_] = standing(numbers);
  byId("known").dataset.known = known;
  byId("known").textContent = words_;
  byId("sentence").textContent = sentence(answered, lowest);
  const helps = isUseful(lowest);
  byId("save-steps").textContent = helps && !outlasts(lowest) ? setting(lowest) : "";
  const steady = (value) => ({ value });
  const others = start.other_rates.map((factor) => best({ ...lowest.estimate, failuresPerS: factor * lowest.estimate.failuresPerS }).steps);
  byId("other-rates").textContent = helps ? `A third of the failures: ${others.map((steps) => counted(steps, "step")).join(". Three times as many: ")}.` : "";
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
  showFields(numbers);
  byId("results").classList.toggle("is-old", numbers.wrong.size > 0);
  if (numbers.wrong.size > 0) {
    byId("known").textContent = "Correct what is marked.";
    return;
  }
  showAnswer(numbers);
  const pairs = isStart() ? [] : writePairs(asked);
  const from = origin === start.cases[0] ? [] : [["from", origin.title]];
  const text = new URLSearchParams([...from, ...pairs]).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
}

/** A link to a case of one's own says all of it: no number of the example is taken for the reader's. */
function begin(from, pairs) {
  origin = from;
  const own = readPairs(pairs);
  const isOwn = from.how === "" && own.texts.size + own.strategies.length > 0;
  asked = readPairs(pairs, isOwn ? EMPTY : readPairs(origin.pairs));
  fill();
}

function readAddress() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))];
  const title = pairs.find(([name]) => name === "from")?.[1];
  begin(start.cases.find((each) => each.title === title) ?? start.cases[0], pairs);
}

makeFields();
window.addEventListener("hashchange", readAddress);
makeChart().then(readAddress);
