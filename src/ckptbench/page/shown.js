"use strict";
// The answer as text and tables.

const FORMULAS = { young: "Young 1974", daly: "Daly 2006", saxena: "Saxena et al. 2024" };

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

const NEXT_TO_NOTHING = 0.01; // Where even the best interval has less goodput than this, no interval is recommended.

/** `On this machine, at 2 ranks, with ..., a checkpoint every 40 steps (2 minutes) loses 3 % [2, 4]; every epoch would lose 9 % [8, 10].` */
function sentence(row, asked, answered, stands) {
  const { best: found, epoch, flat, stepS, betweenS } = answered;
  const unit = row.given ? "GPU" : "rank";
  const isMeasured = asked.gpus === row.ranks;
  const place = isMeasured ? `${row.given || stands.unmeasured ? "At" : "On this machine, at"} ${counted(asked.gpus, unit)}` : `Projected to ${counted(asked.gpus, "GPU")}`;
  const where = stands.unmeasured ? `${place}, by numbers that were not measured` : place;
  const rate = asked.mean_gpu_hours === undefined ? study.rates.find((each) => each.name === asked.rate).title : "your rate";
  const fromTo = [flat.shortestS, flat.longestS].map((each) => Math.max(1, Math.round(each / stepS)));
  const begin = `${where}, with ${row.words} and a failure every ${duration(betweenS.value)} (${rate}),`;
  const best = `every ${steps(found.steps.value)} (${duration(found.intervalS.value)})`;
  if (1 - found.lost.value < NEXT_TO_NOTHING) {
    return `${begin} next to nothing gets done: even a checkpoint ${best}, the best interval, loses ${percent(found.lost)}.`;
  }
  return `${begin} a checkpoint ${best} loses ${percent(found.lost)}; every epoch (${steps(epoch.steps)}) would lose ${percent(epoch.lost)}.` +
    ` Anything from ${number(fromTo[0])} to ${steps(fromTo[1])} is within 1 % of the best.${inUse(row, answered, fromTo)}`;
}

/** ` The 24 steps in use are as good.` Of costs that a user gives, while the page shows the interval in use. */
function inUse(row, { chosen, epoch }, [shortest, longest]) {
  const used = row.in_use_steps;
  if (!row.given || used === epoch.steps || chosen.steps !== used) return "";
  const isOne = used === 1;
  if (shortest <= used && used <= longest) return ` The ${steps(used)} in use ${isOne ? "is" : "are"} as good.`;
  return ` The ${steps(used)} in use ${isOne ? "loses" : "lose"} ${percent(chosen.lost)}.`;
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
  const slower = row.slower.value === 1
    ? ""
    : `where nothing fails a step takes ${Number(row.slower.value.toPrecision(3))} times as long with this recovery, which is counted`;
  byId("source").textContent = [row.source, DOWN_FROM[row.down_from] ?? "", slower, row.note]
    .filter((text) => text)
    .map((text) => `${text[0].toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`)
    .join(" ");
}
