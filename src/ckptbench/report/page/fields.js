"use strict";
// The form: what stands in it goes into the case, and what is wrong or known stands below each field.

const USUAL = ["1 hour", "1 day"];

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

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
  byId("gpu-hour-price").placeholder = "optional, as $2.5";
  byId("limit").placeholder = "optional, as 24h";
  byId("warning").placeholder = "optional, as 2min";
  byId("announced").placeholder = "as 80%";
  listCases();
  byId("from").onchange = ({ target }) => begin(start.cases[target.value], []);
  byId("rate").append(new Option("I enter it:", ""), ...USUAL.map((time) => new Option(`every ${time}`, time)), ...start.rates.map(({ name, title }) => new Option(title, name)));
  byId("rate").onchange = ({ target: { value } }) => setFailures(value === "" || USUAL.includes(value) ? ["mtbf", value || mtbf()] : ["rate", value]);
  byId("add").onclick = () => changeStrategies([...asked.strategies, { kind: "async", name: newName(), stall: "3s", then: "90s", ...(origin.how === "" && { example: ["stall", "then"] }) }]);
  byId("reset").onclick = () => begin(origin, []);
  byId("controls").onsubmit = (event) => event.preventDefault();
}

function listCases() {
  byId("from").replaceChildren(...start.cases.map(({ title }, place) => new Option(title, place)));
}

/** A number was typed. Its field is left as it is. */
function enter(name, text) {
  asked.texts.set(name, text);
  asked.example.delete(name);
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
  return rate === undefined || !(gpus >= 1) ? "" : duration((hoursOf(rate, gpus)[0] / gpus) * SECONDS_PER_HOUR);
}

function fill() {
  for (const name of Object.keys(FIELDS)) byId(name).value = asked.texts.get(name) ?? "";
  byId("from").value = start.cases.indexOf(origin);
  byId("strategies").replaceChildren(...asked.strategies.map(rowOf));
  show();
}

function enterCost(strategy, name, text) {
  strategy[name] = text;
  if (strategy.example) strategy.example = strategy.example.filter((each) => each !== name);
  show();
}

function asKind(strategy, kind) {
  const example = strategy.example?.filter((each) => each !== "then");
  if (kind === "blocking") return { ...strategy, kind, then: "", example };
  return { ...strategy, kind, then: strategy.then || "90s", example: origin.how === "" ? [...example ?? [], "then"] : example };
}

function rowOf(strategy, place) {
  const entry = (name, label) => {
    const input = element("input", { value: strategy[name], spellcheck: false, ariaLabel: `${label}, ${strategy.name}`, oninput: () => enterCost(strategy, name, input.value.trim()) });
    return element("label", { className: `of-${name}`, textContent: label }, input);
  };
  const kinds = element("select", { ariaLabel: `Kind, ${strategy.name}` }, new Option("blocking", "blocking"), new Option("asynchronous", "async"));
  kinds.value = strategy.kind;
  kinds.onchange = () => changeStrategies(asked.strategies.with(place, asKind(strategy, kinds.value)));
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
  byId("source").textContent = kept(origin.source ?? "");
  for (const name of Object.keys(FIELDS)) {
    byId(name).setAttribute("aria-invalid", wrong.has(name));
    byId(`${name}-wrong`).textContent = wrong.get(name) ?? "";
    const how = origin.how_of?.[name] ?? origin.how;
    const isKnown = origin[name] && values[name] === origin[name] && how !== "given"; // which the field says
    byId(`${name}-hint`).textContent = isKnown ? kept(`${how}: ${duration(values[name])}`) : "";
  }
  const { source = "", of_jobs: ends } = rateOf(asked.texts.get("rate")) ?? {};
  byId("mtbf-hint").textContent = ends ? kept(`${source}; ${ends.named}: counted per job, one in ${duration(ends.every_hours * SECONDS_PER_HOUR)} on any number of GPUs`) : source;
  asked.strategies.forEach((each, place) => {
    byId(`strategy-${place}-wrong`).textContent = wrong.get(`strategy-${place}`) ?? "";
    const known = origin.strategies.find(({ name }) => name === each.name);
    byId(`strategy-${place}-hint`).textContent = known === undefined ? "" : kept(hintOf(known, each.kind));
  });
}

function hintOf({ stall, slowdown, slower: everywhere, every, globalTier, copied }, kind) {
  const slower = kind === "async" && slowdown > 0 ? `; slower steps meanwhile cost ${duration(slowdown)}` : "";
  const levels = every > 1 ? `; one of ${every} also goes to shared storage, in ${duration(globalTier)}${copied ? "" : ", the others are lost with a node"}` : "";
  const always = everywhere > 1 ? `; every step takes ${plain(everywhere)} times as long` : "";
  return `${origin.how}: stops training for ${duration(stall)}${slower}${always}${levels}`;
}
