"use strict";
// The controls: what can be set, what each shows, and how each number is known.

const GIVEN = "given";
const OWN = "own";
const KNOWN = { study: "measured", projected: "projected", assumed: "assumed", yours: "yours" };
const DOWN_FROM = {
  failures: "What a failure costs was measured with ranks that were killed.",
  restarts: "What a failure costs is from restarts of killed runs; the time until somebody notices is not in it.",
  starts: "No failure was measured: what one costs is from the starts of runs, and to load a version is taken to last as long as to write one.",
};
/** What can be set as a number. `scale` is from what is asked to what is shown. Sliders are logarithmic. */
const FIELDS = {
  gpus: { label: "GPUs", unit: "", slider: [1, 1048576], whole: true, least: 1, most: 1e9 },
  mean_gpu_hours: { label: "Hours between two failures of one GPU", unit: "h", slider: [100, 1e6], above: 0, most: 1e12 },
  interval: { label: "A checkpoint every", unit: "steps", slider: [1, 1e6], whole: true, least: 1, most: 1e12 },
  gigabytes: { label: "State size", unit: "GB", slider: [0.001, 1e5], above: 0, most: 1e9 },
  gigabytes_per_s: { label: "Bandwidth to storage", unit: "GB/s", slider: [0.001, 1e4], above: 0, most: 1e9 },
  step_s: { label: "Step", unit: "s", above: 0, most: 1e9 },
  stall_s: { label: "Stall: training is blocked", unit: "s", least: 0, most: 1e9 },
  slowdown_s: { label: "Slower steps meanwhile, all together", unit: "s", least: 0, most: 1e9 },
  durable_s: { label: "Durable: until a restart can use it", unit: "s", least: 0, most: 1e9 },
  shared_durable_s: { label: "Until a version lies at the shared level", unit: "s", least: 0, most: 1e9 },
  down_s: { label: "Recovery from a version", unit: "s", least: 0, most: 1e9 },
  survived: { label: "Failures of one node that survivors go on from", unit: "%", scale: 100, least: 0, most: 100 },
  survivable: { label: "Failures that hit one node alone", unit: "%", scale: 100, least: 0, most: 99.9 },
  pause_s: { label: "Such a failure", unit: "s", least: 0, most: 1e9 },
  replacement_minutes: { label: "Until a lost GPU is replaced", unit: "min", least: 0, most: 1e9 },
};
const ASSUMED = ["survivable", "replacement_minutes"];
const OF_STORAGE = ["gigabytes", "gigabytes_per_s"];
const OF_ONE_ROW = [...COSTS, "survived"];
const SLIDES = 200;

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
  document.querySelector("[data-field=shared_durable_s]").hidden = row.shared_every === 1;
  byId("shared_durable_s-hint").append(` One of ${row.shared_every} goes there. The others lie in the nodes: ` +
    `${row.copied ? "copies of them outlive a node." : "a failure of one node takes them."}`);
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
