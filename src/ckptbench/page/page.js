"use strict";
// The page: controls -> what is asked -> the answer -> text, tables and chart. What is asked is in the address, after the #.

const byId = (id) => document.getElementById(id);
const GIVEN = "given";
const OWN = "own";
const KNOWN = { study: "measured", projected: "projected", assumed: "assumed", yours: "yours" };
const FORMULAS = { young: "Young 1974", daly: "Daly 2006", saxena: "Saxena et al. 2024" };
const DOWN_FROM = {
  failures: "What a failure costs was measured with ranks that were killed.",
  restarts: "What a failure costs is from restarts of killed runs; the time until somebody notices is not in it.",
  starts: "No failure was measured: what one costs is from the starts of runs, and to load a version is taken to last as long as to write one.",
};
const MARKS_S = [
  0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400, 365.25 * 86400, 3652.5 * 86400, 36525 * 86400,
];

/** What can be set as a number. `scale` is from what is asked to what is shown. Sliders are logarithmic. */
const FIELDS = {
  gpus: { label: "GPUs", unit: "", slider: [1, 1048576], whole: true, least: 1, most: 1e9 },
  mean_gpu_hours: { label: "Hours between two failures of one GPU", unit: "h", slider: [100, 1e6], above: 0, most: 1e12 },
  interval: { label: "A checkpoint every", unit: "steps", slider: [1, 1e6], whole: true, least: 1, most: 1e12 },
  gigabytes: { label: "State size", unit: "GB", slider: [0.001, 1e5], above: 0, most: 1e9 },
  gigabytes_per_s: { label: "Bandwidth to storage", unit: "GB/s", slider: [0.001, 1e4], above: 0, most: 1e9 },
  step_s: { label: "Step", unit: "s", above: 0, most: 1e9, cost: true },
  stall_s: { label: "Stall: training is blocked", unit: "s", least: 0, most: 1e9, cost: true },
  slowdown_s: { label: "Slower steps meanwhile, all together", unit: "s", least: 0, most: 1e9, cost: true },
  durable_s: { label: "Durable: until a restart can use it", unit: "s", least: 0, most: 1e9, cost: true },
  down_s: { label: "Recovery from a version", unit: "s", least: 0, most: 1e9, cost: true },
  survived: { label: "Failures of one node that survivors go on from", unit: "%", scale: 100, least: 0, most: 100 },
  survivable: { label: "Failures that hit one node alone", unit: "%", scale: 100, least: 0, most: 100 },
  pause_s: { label: "Such a failure", unit: "s", least: 0, most: 1e9, cost: true },
  replacement_minutes: { label: "Until a lost GPU is replaced", unit: "min", least: 0, most: 1e9 },
};
const CHOICES = ["setup", "strategy", "recovery", "rate"];
const OF_STORAGE = ["gigabytes", "gigabytes_per_s"];
const ASSUMED = ["survivable", "replacement_minutes"];
const OF_ONE_ROW = [...COSTS, "survived"];
const SLIDES = 200;
const SHOWN_LOSS = 0.02;
const SHOWN_OF_BEST = 6;
const SHOWN_OF_CHOSEN = 1.5;

const study = unpack(JSON.parse(byId("study").textContent));
/** What the user has changed. All else is as in the study. */
let changed = {};
let view = null;

/** The row of the study that is asked about. What a setup does not have is taken from the start, or is its first. */
function chosenRow() {
  const start = study.rows[study.start];
  let rows = study.rows;
  for (const name of ["setup", "strategy", "recovery"]) {
    const known = [changed[name], start[name], rows[0][name]].find((wanted) => rows.some((row) => row[name] === wanted));
    rows = rows.filter((row) => row[name] === known);
  }
  return rows[0];
}

/** Every number that the answer needs, and what the user wants otherwise. */
function askedOf(row) {
  return { gpus: row.ranks, rate: study.choices.rate, interval: row.in_use_steps, ...changed };
}

/** What each field shows where the user has set nothing. */
function startOf(name, row, asked, costs) {
  if (name === "gpus") return row.ranks;
  if (name === "interval") return row.in_use_steps;
  if (name === "mean_gpu_hours") return study.rates.find((each) => each.name === asked.rate).mean_gpu_hours;
  if (OF_STORAGE.includes(name)) return seenStorage(row)[name];
  if (name === "survived") return row.survived;
  if (COSTS.includes(name)) return costs[name].value;
  return study.choices[name];
}

// ---- controls

function makeFields() {
  for (const holder of document.querySelectorAll("[data-field]")) {
    const name = holder.dataset.field;
    const field = FIELDS[name];
    holder.className = "field";
    holder.innerHTML = `<label for="${name}">${field.label}</label><span class="badge" id="${name}-known"></span>
      <div class="entry"><input type="number" id="${name}" step="any" inputmode="decimal" aria-describedby="${name}-wrong ${name}-hint">
      <span class="unit">${field.unit}</span></div>
      ${field.slider ? `<input type="range" id="${name}-slider" min="0" max="${SLIDES}" step="1" aria-label="${field.label}, slider">` : ""}
      <p class="wrong" id="${name}-wrong"></p><p class="hint" id="${name}-hint"></p>`;
    byId(name).addEventListener("input", () => enter(name));
    if (field.slider) byId(`${name}-slider`).addEventListener("input", () => slide(name));
  }
}

/** What is wrong with a number that was entered, and what to enter instead; "" if nothing. */
function refusal(field, text, value) {
  const least = field.above === undefined ? `from ${field.least}` : `above ${field.above}`;
  const help = `Enter a ${field.whole ? "whole " : ""}number ${least} to ${field.most.toLocaleString("en-US")}.`;
  const low = field.above === undefined ? value < field.least : value <= field.above;
  const isWrong = text === "" || !Number.isFinite(value) || low || value > field.most || (field.whole && !Number.isInteger(value));
  return isWrong ? help : "";
}

function enter(name) {
  const input = byId(name);
  const field = FIELDS[name];
  const problem = refusal(field, input.value, input.valueAsNumber);
  input.setAttribute("aria-invalid", String(problem !== ""));
  byId(`${name}-wrong`).textContent = problem;
  if (problem === "") set(name, input.valueAsNumber / (field.scale ?? 1), input);
}

function slide(name) {
  const { slider: [least, most], whole } = FIELDS[name];
  const slider = byId(`${name}-slider`);
  const exact = least * (most / least) ** (slider.valueAsNumber / SLIDES);
  const short = Math.min(Number(exact.toPrecision(3)), most);
  set(name, whole ? Math.max(1, Math.round(short)) : short, slider);
}

/** Take over a number. `typing` is the field or slider that the user holds: it is left where it is, though the number is rounded. */
function set(name, value, typing) {
  changed[name] = value;
  // A size or bandwidth sets these costs, in place of what was set by hand.
  if (OF_STORAGE.includes(name)) for (const cost of STORED) delete changed[cost];
  show(typing);
}

function choose(name, value) {
  changed[name] = value;
  // Another row has other costs; a published rate takes the place of a number.
  for (const cost of name === "rate" ? ["mean_gpu_hours"] : OF_ONE_ROW) delete changed[cost];
  if (name === "rate" && value === "") changed = withoutOwnRate(changed);
  show(null);
}

/** "Your number" was chosen: begin with that of the rate that was chosen before. */
function withoutOwnRate(before) {
  const { rate, ...rest } = before;
  const last = study.rates.find((each) => each.name === byId("rate").dataset.last);
  return { ...rest, mean_gpu_hours: last.mean_gpu_hours };
}

function fillSelect(id, options, chosen) {
  const select = byId(id);
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value, false, value === chosen)));
}

function distinct(rows, name) {
  return [...new Set(rows.map((row) => row[name]))].map((value) => [value, value]);
}

function showControls(row, asked, costs, typing) {
  fillSelect("setup", distinct(study.rows, "setup"), row.setup);
  const inSetup = study.rows.filter((each) => each.setup === row.setup);
  fillSelect("strategy", distinct(inSetup, "strategy"), row.strategy);
  fillSelect("recovery", distinct(inSetup.filter((each) => each.strategy === row.strategy), "recovery"), row.recovery);
  const rates = study.rates.map((rate) => [rate.name, rate.title]);
  fillSelect("rate", [...rates, ["", "your number"]], asked.mean_gpu_hours === undefined ? asked.rate : "");
  byId("rate").dataset.last = asked.rate;
  for (const [name, field] of Object.entries(FIELDS)) {
    const value = changed[name] ?? startOf(name, row, asked, costs);
    const input = byId(name);
    if (input !== typing) {
      input.value = value === null ? "" : shortened(value * (field.scale ?? 1));
      input.setAttribute("aria-invalid", "false");
      byId(`${name}-wrong`).textContent = "";
    }
    if (field.slider) showSlider(byId(`${name}-slider`), value, field, typing);
    showKnown(byId(`${name}-known`), knownOf(name, row, asked, costs), row);
  }
  showHints(row, asked);
  for (const button of byId("numbers").children) button.setAttribute("aria-pressed", String(Number(button.value) === asked.gpus));
}

/** With four digits, or all of a whole number. */
function shortened(value) {
  return value >= 1000 ? Math.round(value) : Number(value.toPrecision(4));
}

function showSlider(slider, value, { slider: [least, most], unit }, typing) {
  if (slider !== typing) slider.value = value === null ? 0 : (SLIDES * Math.log(value / least)) / Math.log(most / least);
  slider.setAttribute("aria-valuetext", value === null ? "not known" : `${Number(value.toPrecision(4)).toLocaleString("en-US")} ${unit}`.trim());
}

/** How a number is known: one of KNOWN, or "" where that says nothing. */
function knownOf(name, row, asked, costs) {
  if (name === "gpus") return asked.gpus === row.ranks ? "study" : "projected";
  if (changed[name] !== undefined) return "yours";
  if (COSTS.includes(name)) return costs[name].known;
  if (ASSUMED.includes(name)) return "assumed";
  if (name === "survived") return "study";
  if (name === "mean_gpu_hours") return study.rates.find((each) => each.name === asked.rate).projected ? "projected" : "";
  return OF_STORAGE.includes(name) && row.bytes !== null ? "study" : "";
}

function showKnown(badge, known, row) {
  badge.dataset.known = known;
  badge.hidden = known === "";
  badge.textContent = known === "study" && row.given ? GIVEN : KNOWN[known] ?? "";
}

function showHints(row, asked) {
  const unit = row.given ? "GPU" : "rank";
  const rate = asked.mean_gpu_hours === undefined ? study.rates.find((each) => each.name === asked.rate) : null;
  const hours = rate ? rate.mean_gpu_hours : asked.mean_gpu_hours;
  const source = rate && rate.source !== OWN ? ` Source: ${rate.source}.` : "";
  byId("mean_gpu_hours-hint").textContent = `So ${counted(asked.gpus, "GPU")} have a failure every ${duration((hours / asked.gpus) * SECONDS_PER_HOUR)}.${source}`;
  byId("gpus-hint").textContent = `${row.given ? "Given" : "Measured"}: ${counted(row.ranks, unit)}${row.hardware}.`;
  for (const name of COSTS) {
    const { value, lo, hi } = row.costs[name];
    const range = lo === null || hi === null ? { value, lo: value, hi: value } : { value, lo, hi };
    byId(`${name}-hint`).textContent = `${row.given ? "Given" : "Measured"}: ${amount(range, 1, "s")}.`;
  }
  byId("down_s-hint").append(row.given ? "" : ` ${DOWN_FROM[row.down_from] ?? ""}`);
  byId("survived-hint").textContent = "Of those that hit one node alone. 0 %: all ranks begin again from a version after every failure.";
  byId("survivable-hint").textContent = "Of all failures.";
  byId("replacement_minutes-hint").textContent = row.replaces
    ? "Not used here: this recovery replaces a lost rank by itself."
    : "Meanwhile its share of the work is not done.";
  const seconds = (changed.step_s ?? row.costs.step_s.value) * asked.interval;
  byId("interval-hint").textContent = `${duration(seconds)} of useful time. In use in the study: every ${counted(row.in_use_steps, "step")}.`;
}

function showStorage(row, asked) {
  const some = OF_STORAGE.filter((name) => asked[name] !== undefined);
  const seen = seenStorage(row);
  const lacks = OF_STORAGE.filter((name) => asked[name] === undefined && seen[name] === null).map((name) => FIELDS[name].label.toLowerCase());
  if (some.length && lacks.length) byId("storage").textContent = `Not used yet: enter the ${listed(lacks)} too.`;
  else if (some.length && STORED.every((name) => changed[name] === undefined)) {
    byId("storage").textContent = "Stall, slower steps and durable time are now projected from size and bandwidth: no measurement.";
  } else if (lacks.length) byId("storage").textContent = "The size of a version is not known. Enter size and bandwidth to project a checkpoint from them.";
  else byId("storage").textContent = "Bandwidth: size ÷ durable time. Change one of them to project what a checkpoint would cost.";
}

// ---- answer

/** A number as text, beside the number with all its digits and the ends of its interval. */
function setData(element, known, text) {
  const { value, lo, hi } = typeof known === "number" ? { value: known, lo: known, hi: known } : known;
  element.value = String(value);
  Object.assign(element.dataset, { lo, hi });
  element.textContent = text;
}

function useful(lost) {
  return { value: 1 - lost.value, lo: 1 - lost.hi, hi: 1 - lost.lo };
}

/** How the whole answer is known, and in words. */
function standing(row, asked, costs) {
  const ways = new Set(COSTS.map((name) => costs[name].known));
  const elsewhere = asked.gpus !== row.ranks || ways.has("projected");
  const assumed = ["mean_gpu_hours", "survived", ...ASSUMED].some((name) => changed[name] !== undefined);
  const own = ways.has("yours") || assumed;
  const start = row.given ? "From costs that were given" : "From measured costs, at the number of ranks that was measured";
  const text = elsewhere ? `Projected${own ? ", with numbers of yours" : ""}` : own ? "With numbers of yours" : start;
  const unmeasured = ways.has("yours") || ways.has("projected") || changed.survived !== undefined;
  return { known: elsewhere ? "projected" : own ? "yours" : "study", own, unmeasured, text };
}

/** `On this machine, at 2 ranks, with ..., a checkpoint every 40 steps (2 minutes) loses 3 % [2, 4]; every epoch would lose 9 % [8, 10].` */
function sentence(row, asked, answered, stands) {
  const { best: found, epoch, flat, stepS, betweenS } = answered;
  const unit = row.given ? "GPU" : "rank";
  const isMeasured = asked.gpus === row.ranks;
  const place = isMeasured ? `${row.given || stands.unmeasured ? "At" : "On this machine, at"} ${counted(asked.gpus, unit)}` : `Projected to ${counted(asked.gpus, "GPU")}`;
  const where = stands.unmeasured ? `${place}, by numbers that were not measured` : place;
  const rate = asked.mean_gpu_hours === undefined ? study.rates.find((each) => each.name === asked.rate).title : "your rate";
  const fromTo = [flat.shortestS, flat.longestS].map((each) => Math.max(1, Math.round(each / stepS)));
  return `${where}, with ${row.words} and a failure every ${duration(betweenS.value)} (${rate}), a checkpoint every ${steps(found.steps.value)}` +
    ` (${duration(found.intervalS.value)}) loses ${percent(found.lost)}; every epoch (${steps(epoch.steps)}) would lose ${percent(epoch.lost)}.` +
    ` Anything from ${number(fromTo[0])} to ${steps(fromTo[1])} is within 1 % of the best.`;
}

function showAnswer(row, asked, answered, stands) {
  const { best: found, chosen } = answered;
  showKnown(byId("known"), stands.known, row);
  byId("known").textContent = stands.text;
  setData(byId("best-steps"), found.steps, steps(found.steps.value));
  setData(byId("best-interval"), found.intervalS, duration(found.intervalS.value));
  setData(byId("best-lost"), found.lost, percent(found.lost));
  setData(byId("chosen-steps"), chosen.steps, counted(chosen.steps, "step"));
  setData(byId("chosen-lost"), chosen.lost, percent(chosen.lost));
  byId("sentence").textContent = sentence(row, asked, answered, stands);
}

/** One row of a table; a cell is a text, or a number and its text. */
function tableRow(cells, isNow) {
  const line = document.createElement("tr");
  line.className = isNow ? "now" : "";
  line.append(...cells.map((cell, place) => {
    const element = document.createElement(place === 0 ? "th" : "td");
    if (place === 0) element.scope = "row";
    if (typeof cell === "string") element.textContent = cell;
    else {
      const data = document.createElement("data");
      setData(data, cell[0], cell[1]);
      element.append(data);
    }
    return element;
  }));
  return line;
}

function showIntervals(answered) {
  const { best: found, chosen, epoch, formulas, stepS } = answered;
  const line = (name, number, seconds, lost, isNow) =>
    tableRow([name, [number, steps(number)], [seconds, duration(seconds)], [lost, percent(lost)]], isNow);
  byId("intervals").tBodies[0].replaceChildren(
    line("best", found.steps.value, found.intervalS.value, found.lost, false),
    line("chosen", chosen.steps, chosen.intervalS, chosen.lost, true),
    line("every epoch", epoch.steps, epoch.steps * stepS, epoch.lost, false),
    ...formulas.map(({ name, intervalS, possibleS, lost }) =>
      line(FORMULAS[name], Math.max(1, Math.round(possibleS / stepS)), intervalS, { value: lost, lo: lost, hi: lost }, false)),
  );
}

function showCompared(row, asked) {
  const inSetup = study.rows.filter((each) => each.setup === row.setup);
  const shared = Object.fromEntries(Object.entries(asked).filter(([name]) => !OF_ONE_ROW.includes(name)));
  byId("compared").hidden = inSetup.length < 2;
  byId("compared").tBodies[0].replaceChildren(...compared(study, inSetup, shared).map((each) => tableRow([
    each.row.strategy,
    each.row.recovery,
    [each.intervalS, `${steps(each.steps)} (${duration(each.intervalS)})`],
    [each.lost, percent({ value: each.lost, lo: each.lost, hi: each.lost })],
  ], each.row === row)));
}

function showAbout(row) {
  showKnown(byId("about-known"), "study", row);
  byId("source").textContent = [row.source, DOWN_FROM[row.down_from] ?? "", row.note]
    .filter((text) => text)
    .map((text) => `${text[0].toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`)
    .join(" ");
}

// ---- chart

async function makeChart() {
  const spec = JSON.parse(byId("chart-spec").textContent);
  const options = { mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, expressionFunctions: { mark } };
  view = (await vegaEmbed("#chart", spec, options)).view;
}

function showChart(row, asked, answered, stands) {
  const points = curve(answered);
  const flatPoints = points.filter(({ intervalS }) => answered.flat.shortestS <= intervalS && intervalS <= answered.flat.longestS);
  const isStudy = stands.known === "study";
  const [before] = casesOf(study, row, { gpus: row.ranks, rate: asked.mean_gpu_hours === undefined ? asked.rate : study.choices.rate });
  const shown = ({ intervalS, goodput: useful }) => ({ seconds: intervalS, goodput: useful.value, lo: useful.lo, hi: useful.hi });
  const data = {
    curve: points.map(shown),
    flat: flatPoints.map(shown),
    reference: isStudy ? [] : points.map(({ intervalS }) => ({ seconds: intervalS, goodput: goodputAt(before, intervalS) })),
    chosen: [{ seconds: answered.chosen.intervalS }],
    formulas: answered.formulas.map(({ name, possibleS, lost }) => ({ name, seconds: possibleS, goodput: 1 - lost })),
    best: [{ seconds: answered.best.intervalS.value, goodput: 1 - answered.best.lost.value }],
  };
  const seconds = [...data.curve, ...data.formulas].map((each) => each.seconds);
  const parts = [...data.curve.flatMap(({ lo, hi }) => [lo, hi]), ...data.reference.map((each) => each.goodput)];
  const [shortest, longest] = [Math.min(...seconds), Math.max(...seconds)];
  const ends = { shortest, longest, lowest: Math.max(Math.min(...parts), lowestOf(answered)), highest: Math.max(...parts) };
  for (const [name, value] of Object.entries(ends)) view.signal(name, value);
  view.signal("marks", MARKS_S.filter((each) => shortest <= each && each <= longest));
  for (const [name, values] of Object.entries(data)) view.data(name, values);
  view.run();
  byId("chart").classList.toggle("is-projected", !isStudy);
  byId("legend-now").classList.toggle("is-projected", !isStudy);
  byId("legend-now").lastElementChild.textContent = nameOf(row, asked, stands);
  byId("legend-study").hidden = isStudy;
  byId("legend-study").lastElementChild.textContent = `${row.given ? "given" : "measured"}: ${counted(row.ranks, row.given ? "GPU" : "rank")}, costs as in the study`;
  byId("caption").textContent = `Goodput, the useful part of the time, against the interval: ${percentOfUseful(answered)} at the best.` +
    (isStudy ? "" : " Dashed: not measured. Solid grey: the costs of the study at its own number of GPUs.");
  showCsv(points, asked, answered, stands);
}

/** Where the axis of the goodput begins at the least: what is far worse than the best and the chosen interval is cut off. */
function lowestOf({ best: found, chosen }) {
  return 1 - Math.max(SHOWN_LOSS, SHOWN_OF_BEST * found.lost.hi, SHOWN_OF_CHOSEN * chosen.lost.hi);
}

function percentOfUseful(answered) {
  return amount(useful(answered.best.lost), 100, "%");
}

function nameOf(row, asked, stands) {
  const where = counted(asked.gpus, row.given || asked.gpus !== row.ranks ? "GPU" : "rank");
  if (stands.known === "study") return `${row.given ? "given" : "measured"}: ${where}`;
  return `${where}, ${stands.text.toLowerCase()}`;
}

function showCsv(points, asked, answered, stands) {
  const lines = points.map(({ intervalS, goodput: part }) =>
    [intervalS / SECONDS_PER_MINUTE, intervalS / answered.stepS, part.value, part.lo, part.hi, asked.gpus, stands.known === "projected", stands.own].join(","));
  const link = byId("csv");
  URL.revokeObjectURL(link.href);
  const text = ["interval_minutes,interval_steps,goodput,goodput_lo,goodput_hi,gpus,projected,own_numbers", ...lines, ""].join("\n");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
}

// ---- the address

function writeAddress() {
  const text = new URLSearchParams(Object.entries(changed).map(([name, value]) => [name, String(value)])).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
}

/** What the address asks for. A number that no field would take is left out. */
function readAddress() {
  const asked = {};
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    const field = FIELDS[name];
    const value = Number(text);
    if (field && refusal(field, text, value * (field.scale ?? 1)) === "") asked[name] = value;
    else if (CHOICES.includes(name)) asked[name] = text;
  }
  if (asked.rate !== undefined && !study.rates.some((rate) => rate.name === asked.rate)) delete asked.rate;
  return asked;
}

// ---- all of it

function show(typing) {
  const row = chosenRow();
  const asked = askedOf(row);
  const costs = costsOf(study, row, asked);
  const answered = answer(study, row, asked);
  const stands = standing(row, asked, costs);
  showControls(row, asked, costs, typing);
  showStorage(row, asked);
  showAnswer(row, asked, answered, stands);
  showIntervals(answered);
  showCompared(row, asked);
  showAbout(row);
  showChart(row, asked, answered, stands);
  writeAddress();
}

function makeShortcuts() {
  const numbers = new Set([...study.rows.map((row) => row.ranks), ...study.choices.gpus]);
  byId("numbers").replaceChildren(...[...numbers].sort((one, other) => one - other).map((value) => {
    const button = document.createElement("button");
    button.type = "button";
    button.value = String(value);
    button.textContent = value.toLocaleString("en-US");
    button.addEventListener("click", () => set("gpus", value, null));
    return button;
  }));
}

async function begin() {
  if (study.rows.length === 0) {
    byId("nothing").hidden = false;
    return;
  }
  byId("main").hidden = false;
  makeFields();
  makeShortcuts();
  await makeChart();
  byId("survivable-assumed").textContent = plainAmount(100 * study.choices.survivable, "%");
  byId("replacement-assumed").textContent = duration(study.choices.replacement_minutes * SECONDS_PER_MINUTE);
  byId("draws").textContent = study.number_of_draws.toLocaleString("en-US");
  for (const name of CHOICES) byId(name).addEventListener("change", (event) => choose(name, event.target.value));
  byId("reset").addEventListener("click", () => {
    changed = {};
    show(null);
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => {
    changed = readAddress();
    show(null);
  });
  changed = readAddress();
  show(null);
}

begin();
