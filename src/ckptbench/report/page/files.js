"use strict";
// A file that the reader drops or chooses: costs in the form of config/costs-example.yaml, or trainer_state.json. It is read here and sent nowhere.

const NO_FAILURES = "Enter how often the job fails";
const COSTS_FORM = "give a number of seconds from 0, or {value: ..., lo: ..., hi: ...}";
const text_ = (value) => (typeof value === "string" ? value.split(/\s+/).join(" ") : undefined);
const whole_ = (value) => (Number.isInteger(value) && value >= 1 && value <= words.most ? value : undefined);
const flag = (value) => (typeof value === "boolean" ? value : undefined);
const part = (value) => (typeof value === "number" && value <= 1 ? value : undefined);
function seconds(value) {
  const known = typeof value === "number" ? { value, hi: NaN } : value;
  const isWhole = typeof value === "number" || (value?.lo > 0 && value.lo <= value.value && value.value <= value.hi);
  return isWhole && known.value <= words.most && !(known.hi > words.most) ? known : undefined;
}
/** The fields of each part of the file: how they are read, and what counts where one is left out. */
const COSTS = {
  "": { title: [text_], gpus: [whole_], step_s: [seconds], steps_per_epoch: [whole_], interval: [everyOf, 1] },
  strategies: {
    name: [text_], stall_s: [seconds], durable_s: [seconds, null], slowdown_s: [seconds, { value: 0 }], shared_every: [whole_, 1],
    shared_durable_s: [seconds, null], copied: [flag, false], bytes: [(value) => (Number.isInteger(value) ? value : undefined), null],
  },
  recoveries: { name: [text_], down_s: [seconds], survived: [part, 0], pause_s: [seconds, { value: 0 }], replaces: [flag, true] },
};

function everyOf(value) {
  const steps = /^([1-9]\d{0,8}) steps?$/.exec(value);
  if (steps) return () => Number(steps[1]);
  return whole_(value) && ((ofEpoch) => value * ofEpoch);
}

/** A number, true, false, a text, or {value: 60, lo: 45, hi: 80}. Undefined for all else that YAML has. */
function plainValue(text) {
  if (/^(0|[1-9]\d*)(\.\d+)?$/.test(text)) return Number(text);
  if (/^(true|false)$/.test(text)) return text === "true";
  const quoted = /^"([^"\\]+)"$|^'([^']+)'$/.exec(text);
  if (quoted) return quoted[1] ?? quoted[2];
  if (/^\{.*\}$/.test(text)) {
    const pairs = text.slice(1, -1).split(",").map((each) => /^\s*(value|lo|hi): +([\d.]+)\s*$/.exec(each));
    const known = new Map(pairs.map((each) => [each?.[1], plainValue(each?.[2] ?? "")]));
    return pairs.length === 3 && known.size === 3 && [...known.values()].every((each) => typeof each === "number") ? Object.fromEntries(known) : undefined;
  }
  const isOther = /^(y|n|yes|no|on|off|null|~)$/i.test(text) || /^[-+.\d][-+.\d_:eExob]*$/.test(text);
  return !isOther && /^[^\s!&*?|>%@`"'#[\]{},:-](?:(?!: | #).)*[^:\s]?$/.test(text) ? text : undefined;
}

/** The file as {"": fields, strategies: [fields], recoveries: [fields]}. Throws Wrong with the line of what is not read. */
function readFlat(text) {
  const found = { "": {}, strategies: [], recoveries: [] };
  let [list, column] = ["", 0];
  text.replace(/^\uFEFF/, "").split(/\r?\n/).forEach((line, place) => {
    const refuse = (why) => { throw new Wrong(`line ${place + 1}, ${JSON.stringify(line.trim().slice(0, 60))}: ${why}`); };
    const bare = line.replace(/(^|\s)#.*$/, "").trimEnd();
    if (bare === "") return;
    const match = /^( *)(- +)?([a-z_]+):(?: +(.+))?$/.exec(bare);
    if (match === null) refuse("not in the form of config/costs-example.yaml");
    const [, indent, dash = "", name, value] = match;
    if (indent + dash === "") list = "";
    if (list === "" && value === undefined && Array.isArray(found[name]) && indent + dash === "" && found[name].length === 0) {
      [list, column] = [name, 0];
      return;
    }
    if (list !== "" && dash) found[list].push({});
    if (list !== "" && found[list].length === 1 && dash) column = indent.length + dash.length;
    const fields = list === "" ? found[""] : found[list].at(-1);
    if (fields === undefined || indent.length + dash.length !== column * (list !== "") || (list === "" && dash)) refuse("not in the form of config/costs-example.yaml");
    if (!Object.hasOwn(COSTS[list], name)) refuse(`no field here has this name: use ${Object.keys(COSTS[list]).join(", ")}`);
    if (Object.hasOwn(fields, name)) refuse("given twice");
    const known = COSTS[list][name][0](plainValue(value ?? ""));
    if (known === undefined) refuse(name.endsWith("_s") ? COSTS_FORM : "not a value that is read here");
    fields[name] = known;
  });
  for (const [part_, fields] of Object.entries(COSTS)) {
    const all = [found[part_]].flat();
    if (all.length === 0) throw new Wrong(`${part_} is missing`);
    for (const each of all) for (const [name, [, usual]] of Object.entries(fields)) {
      if (!Object.hasOwn(each, name) && usual === undefined) throw new Wrong(`${part_ && `${part_}: `}${name} is missing`);
      each[name] ??= name === "interval" ? everyOf(usual) : usual;
    }
  }
  return found;
}

/** One case for each recovery, as src/ckptbench/report/page/start.py makes them of the same file. */
function casesOfCosts(text, file, others) {
  const { "": { title, gpus, step_s: step, steps_per_epoch: epoch, interval }, strategies, recoveries } = readFlat(text);
  if (step.value === 0) throw new Wrong("step_s: use more than 0 seconds");
  const spoken = ({ name }) => name.replaceAll("_", " ").trim();
  for (const each of [strategies, recoveries]) if (new Set(each.map(spoken)).size < each.length) throw new Wrong("two have one name: give each its own");
  for (const { stall_s: stall, durable_s: durable, shared_every: every, shared_durable_s: shared } of strategies) {
    const atLast = (durable ?? stall).value;
    if (atLast < stall.value) throw new Wrong("durable_s: use at least stall_s, or leave it out");
    if ((every > 1) !== (shared !== null) || shared?.value < atLast) throw new Wrong("shared_durable_s: give it with shared_every above 1, and at least durable_s");
  }
  return recoveries.map((recovery) => {
    const made = strategies.map((saved) => {
      const [stall, durable, name] = [saved.stall_s, saved.durable_s ?? saved.stall_s, spoken(saved)];
      const waits = !(durable.value > Math.max(stall.value, stall.hi || 0));
      const pair = waits ? ["blocking", `${name}=${inField(stall.value)}`] : ["async", `${name}=${inField(stall.value)}+${inField(durable.value - stall.value)}`];
      return [pair, {
        stall: stall.value, durable: durable.value, slowdown: saved.slowdown_s.value, slower: 1, down: recovery.down_s.value, pause: recovery.pause_s.value,
        survived: recovery.survived, globalTier: saved.shared_every > 1 ? saved.shared_durable_s.value : 0, least: false, name, every: saved.shared_every, copied: saved.copied, growth: null,
      }];
    });
    return {
      title: `${title} · ${counted(gpus, "GPU")} · ${spoken(recovery)}`, how: "given", how_of: { step: "given", restart: "given" }, where: counted(gpus, "GPU"),
      source: `Costs of ${file}, not measured here`, file, ranks: gpus, replaces: recovery.replaces, step: step.value, slower: 1, restart: recovery.down_s.value, isDropped: true,
      pairs: [["gpus", String(gpus)], ...others, ["step", inField(step.value)], ...made.map(([pair]) => pair), ["restart", inField(recovery.down_s.value)], ["now", `${interval(epoch)} steps`]],
      strategies: made.map(([, known]) => known),
    };
  });
}

/** A time as people write it. */
function inField(value) {
  const unit = unitOfTime(value);
  return `${Number((value * unit.scale).toPrecision(3))} ${unit.name}`;
}
