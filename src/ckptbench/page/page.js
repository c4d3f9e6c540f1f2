"use strict";
// The page: controls -> what is asked -> the answer -> text, tables and chart. What is asked is in the address, after the #.

const byId = (id) => document.getElementById(id);

const CHOICES = ["setup", "strategy", "recovery", "rate"];

const study = unpack(JSON.parse(byId("study").textContent));
/** What the user has changed. All else is as in the study. */
let changed = {};

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
  if (name === "survived") return row.survived.value;
  if (COSTS.includes(name)) return costs[name].value;
  return study.choices[name];
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
