"use strict";
// To take away: a link, the equal command, and what a printed page has to say.

const SAFE = /^[\w@%+=:,./-]+$/;
const quoted = (text) => (SAFE.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The equal call of the command. Throws Wrong where its options cannot say this case. */
function command(numbers) {
  const { values } = numbers;
  const options = [...costsOf(numbers), ...failuresOf(numbers), ...["now", "limit", "gpu-hour-price", "warning"].filter((name) => values[name]).map((name) => [name, asked.texts.get(name)]), ...(values.warning ? [["announced", `${100 * values.announced}%`]] : [])];
  return `ckptbench decide ${options.map(([name, text]) => `--${name} ${quoted(text)}`).join(" ")}`;
}

/** Whose the numbers are, where some are an example's. Else empty. */
function caution(numbers) {
  const [known, said] = standing(numbers);
  return ["example", "part"].includes(known) ? said : "";
}

/** The command, below a line on whose the numbers are: quoted, as a shell may read comments as commands. */
function toCopy(numbers) {
  const said = caution(numbers).replace(/\s+/g, " ").replaceAll("'", "\u2019");
  return `${said && `# ${quoted(said)}\n`}${command(numbers)}`;
}

/** A time as it was entered, where that is the number. */
function exact(text, number) {
  try {
    if (readTime(text) === number) return text;
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
  }
  return `${number}s`;
}

function costsOf({ values, strategies }) {
  const [gpus, step, restart] = [["gpus", String(values.gpus)], ["step", exact(asked.texts.get("step"), values.step)], ["restart", exact(asked.texts.get("restart"), values.restart)]];
  const isOfFile = strategies.length === origin.strategies.length && strategies.every(({ isMeasured }) => isMeasured) && values.survived === null && values.pause === null;
  if (origin.file && isOfFile) return [["costs", origin.file], gpus, ...[step, restart].filter(([name]) => values[name] !== origin[name])];
  const isBeside = ({ slowdown, known }) => slowdown > 0 || known?.every > 1 || known?.slower > 1 || (known?.growth && values.gpus !== origin.ranks);
  const survives = values.survived ?? Math.max(0, ...strategies.map(({ known }) => known?.survived ?? 0));
  if (strategies.some(isBeside) || survives > 0 || values.restart === null) throw new Wrong("No options of the command say all of this: write it into a file like config/costs-example.yaml, for --costs");
  const each = strategies.map(({ name, stall, durable }, place) => {
    const { stall: first, then } = asked.strategies[place];
    const kind = durable > stall ? "async" : "blocking";
    const times = kind === "async" ? `${exact(first, stall)}+${exact(then, durable - stall)}` : exact(first, stall);
    return { kind, text: `${name === kind ? "" : `${name}=`}${times}` };
  });
  if (values.now && each[0].kind === "async" && each.some(({ kind }) => kind === "blocking")) throw new Wrong("The command takes today's interval for the first blocking strategy: move it to the top");
  const inOrder = each.toSorted((one, other) => (one.kind < other.kind) - (one.kind > other.kind));
  return [gpus, step, ...inOrder.map(({ kind, text }) => [kind, text]), restart];
}

function failuresOf({ values, rate }) {
  if (rate === undefined) return [["mtbf", exact(asked.texts.get("mtbf"), values.mtbf)]];
  if (rate.source !== start.own) return [["rate", rate.name]];
  if (rate.bound || rate.hours.length > 1) throw new Wrong("The failures of a log are counted by the command: give it --log again");
  return [["mtbf", `${(hoursOf(rate, values.gpus)[0] / values.gpus) * SECONDS_PER_HOUR}s`]];
}

/** Copy it, and say so. Where the browser does not allow that, the text is there to be copied by hand. */
async function copy(text, what) {
  byId("copied").className = "hint";
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = `Copied: ${what}.`;
  } catch {
    byId("copied").textContent = text;
    getSelection().selectAllChildren(byId("copied"));
  }
}

/** The text and what it is, from numbers that are right; else say what is wrong. */
function copyOf(made) {
  try {
    const numbers = numbersOf(asked, origin);
    if (numbers.wrong.size > 0) throw new Wrong("Correct what is marked first");
    copy(...made(numbers));
  } catch (error) {
    if (!(error instanceof Wrong)) throw error;
    byId("copied").className = "wrong";
    byId("copied").textContent = error.message;
  }
}

/** The case in words, with date and link, which stands in print in place of the form. */
function writePrinted({ rate, strategies }) {
  const labels = [...document.querySelectorAll("[data-field]")].map(({ dataset: { field, label } }) => [label, asked.texts.get(field) ?? "", asked.example.has(field)]);
  const fields = [...labels.filter(([, text]) => text !== ""), ...(rate ? [["How often it fails", rate.title]] : [])].map(([label, text, isExample]) => `${label}: ${text}${isExample ? " (example)" : ""}`);
  const each = strategies.map(({ name, stall, durable }, place) => `${name}: stops training for ${duration(stall)}${durable > stall ? `, then written for ${duration(durable - stall)}` : ""}${asked.strategies[place].example?.length ? " (example)" : ""}`);
  const date = new Date();
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part_) => String(part_).padStart(2, "0")).join("-");
  byId("printed").replaceChildren(kept(`${[...fields, ...each].join(". ")}. Printed on ${day} from `), element("a", { href: location.href, textContent: location.href }));
}

function makeShare() {
  byId("copy-link").onclick = () => copyOf((numbers) => [location.href, caution(numbers) ? `the link (${caution(numbers)})` : "the link, which holds your numbers"]);
  byId("copy-command").onclick = () => copyOf((numbers) => [toCopy(numbers), toCopy(numbers)]);
  byId("print").onclick = () => print();
  addEventListener("beforeprint", () => {
    const numbers = numbersOf(asked, origin);
    if (numbers.wrong.size === 0) writePrinted(numbers);
  });
}
