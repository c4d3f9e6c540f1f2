"use strict";
// The chart, and its curve as CSV.

const MARKS_S = [
  0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400, 365.25 * 86400, 3652.5 * 86400, 36525 * 86400,
];
const SHOWN_LOSS = 0.02; // The axis shows at least such a part of the time, and more where the best or the chosen interval loses more.
const SHOWN_OF_BEST = 6;
const SHOWN_OF_CHOSEN = 1.5;
let view = null;

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
