"use strict";
// What a dropped or chosen file fills, and what is said of it.

/** Facts of a state of Hugging Face's Trainer, as src/ckptbench/decide/training_log/files.py takes them. */
function factsOfState(text) {
  let state;
  try {
    // Python writes numbers that JSON does not have.
    state = JSON.parse(text.replace(/(:\s*)(?:NaN|-?Infinity)\b/g, "$1null"));
  } catch {
    throw new Wrong("cannot be read as JSON: take that of another checkpoint");
  }
  if (!Array.isArray(state?.log_history)) throw new Wrong("is no trainer_state.json: it has no log_history");
  const number = (value) => (Number.isFinite(value) && value >= 0 && value <= words.largest ? value : 0);
  let [step, aside] = [0, 0];
  for (const entry of state.log_history) {
    aside += number(entry?.eval_runtime);
    if (number(entry?.train_runtime) && number(entry.step)) step = (entry.train_runtime - aside) / entry.step;
  }
  const [last, every] = [number(state.global_step), Math.floor(number(state.save_steps))];
  // Else another strategy saved the file.
  const interval = every >= 1 && (every > last || last % every === 0) ? every : null;
  return { step: step > 0 ? step : null, interval, training_steps: Math.floor(number(state.max_steps)) || null, multiple_of: Math.floor(number(state.eval_steps)) || interval };
}

/** What is not an example's. */
function ownOf() {
  const strategies = asked.strategies.filter(({ example }) => !example?.length);
  return { texts: [...asked.texts].filter(([name]) => !asked.example.has(name)), strategies: strategies.length ? strategies : EMPTY.strategies };
}

function casesOfState(text, file) {
  const { step, interval, ...known } = factsOfState(text);
  const own = readPairs([...(step ? [["step", `${Number(step.toPrecision(6))} s`]] : []), ...(interval ? [["now", `${interval} steps`]] : [])], { texts: new Map(ownOf().texts), strategies: ownOf().strategies });
  const told = [step && `a step ${duration(step)}, saves of the whole run in it`, interval && `a save every ${counted(interval, "step")}`, known.training_steps && `${counted(known.training_steps, "step")} in all`].filter(Boolean);
  if (told.length === 0) throw new Wrong("has neither steps nor saves");
  const source = `${file} says: ${told.join("; ")}. It does not say how many GPUs train, and what a save, a restart or a failure costs.`;
  return [{ title: file, how: "", strategies: [], settings: start.settings, ...known, source, isDropped: true, pairs: writePairs(own) }];
}

async function fillFrom(file) {
  const said = byId("file-said");
  try {
    const text = await file.text();
    const others = ownOf().texts.filter(([name, each]) => ["mtbf", "rate", "limit", "warning", "announced", "gpu-hour-price"].includes(name) && each !== "");
    const readers = { yaml: casesOfCosts, yml: casesOfCosts, json: casesOfState };
    const read = readers[file.name.split(".").at(-1).toLowerCase()];
    if (read === undefined) throw new Wrong("is not read here");
    const cases = read(text, file.name, others);
    start.cases.unshift(...cases);
    listCases();
    begin(cases[0], []);
    said.className = "wide hint";
    said.textContent = `Filled from ${file.name}. A link holds what the fields show, not the file.`;
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
    const option = file.name.endsWith("ml") ? "--costs" : "--training-log";
    said.className = "wide wrong";
    said.textContent = `${file.name}: ${error.message}. The command reads more: ckptbench decide ${option} ${quoted(file.name)} --html page.html`;
  }
}

function takeFiles() {
  byId("file").onchange = ({ target }) => {
    if (target.files.length) fillFrom(target.files[0]);
    target.value = "";
  };
  document.ondragover = (event) => event.preventDefault();
  document.ondrop = (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) fillFrom(event.dataTransfer.files[0]);
  };
}
