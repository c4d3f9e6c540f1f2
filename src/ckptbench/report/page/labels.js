"use strict";
// Names at the lines of the chart, and what the interval under the pointer loses.

const FONT = "12px system-ui, sans-serif"; // As in chart.json.
const LONGEST_LABEL = 26;
const NEAR = 15; // Pixels from a point to the middle of its name.
const measure = document.createElement("canvas").getContext("2d");
/** Seconds of the interval that the reader has pointed at. */
let readAt = null;

/** Write a name beside each line, and `today`, where they hide least. */
function label() {
  if (charted === null) return;
  const [x, y] = [view.scale("x"), view.scale("y")];
  const [width, height] = [view.signal("width"), view.signal("height")];
  const drawn = charted.points.map(({ place: of, seconds, lost }) => [x(seconds), y(lost), of]);
  const taken = charted.bests.map(({ seconds, lost }) => ({ left: x(seconds) - 6, right: x(seconds) + 6, top: y(lost) - 6, bottom: y(lost) + 6 }));
  const place = (text, color, wished, own) => {
    measure.font = FONT;
    const half = measure.measureText(text).width / 2 + 3;
    const tried = wished.map(([middle, at], order) => {
      const centre = Math.min(Math.max(middle, half), width - half);
      const box = { left: centre - half, right: centre + half, top: at - 8, bottom: at + 8, centre, at };
      const isOver = (other) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
      const outside = box.top < 0 || box.bottom > height ? 1000 : 0;
      // Of another line it keeps off farther, or it would be taken for that one's name.
      const crossed = drawn.map(([left, top, of]) => (box.left <= left && left <= box.right && Math.abs(top - at) <= (of === own ? 8 : 16) ? 1 + 4 * (of !== own) : 0));
      return { box, cost: crossed.reduce((sum_, each) => sum_ + each, outside + 100 * taken.filter(isOver).length + order) };
    });
    const { box } = tried.reduce((found, each) => (each.cost < found.cost ? each : found));
    taken.push(box);
    return { text, color, seconds: x.invert(box.centre), lost: y.invert(box.at) };
  };
  const sides = ([left, top]) => [[left, top + NEAR], [left, top - NEAR]];
  const made = [];
  if (charted.now) {
    const at = x(charted.now.seconds);
    made.push(place("today", "var(--ink)", [10, height - 10, height / 2].flatMap((top) => [[at + 26, top], [at - 26, top]])));
  }
  charted.bests.forEach(({ name, seconds, lost, color }, of) => {
    const along = charted.points.filter(({ place: each }) => each === of).map((point) => [x(point.seconds), y(point.lost)]);
    const text = name.length > LONGEST_LABEL ? `${name.slice(0, LONGEST_LABEL - 1)}…` : name;
    made.push(place(text, color, [...sides([x(seconds), y(lost)]), ...along.filter((_, at) => at % 8 === 4).flatMap(sides)], of));
  });
  view.data("labels", made).run();
}

/** By the pointer on the chart, or by the slider below it, which keys move too. */
function followPointer() {
  const follow = (event) => {
    const seconds = view.scale("x").invert(event.clientX - byId("chart").getBoundingClientRect().left - view.origin()[0]);
    if (charted !== null) showLossAt(readAt = seconds);
  };
  byId("chart").onpointermove = follow;
  byId("chart").onpointerdown = follow;
  byId("at").oninput = ({ target: { value } }) => showLossAt(readAt = charted.shortest * (charted.longest / charted.shortest) ** (value / 100));
}

function showLossAt(wished) {
  const { shortest, longest, strategies } = charted;
  const { stepS } = strategies[0].estimate;
  const steps = Math.max(1, Math.round(Math.min(Math.max(wished, shortest), longest) / stepS));
  const seconds = steps * stepS;
  const found = strategies.map(({ name, estimate }, place) => ({ name, seconds, lost: 1 - usefulAt(estimate, seconds / estimate.stepS), ...lineOf(place) }));
  const said = kept(`Every ${duration(seconds)} (${counted(steps, "step")}) loses: ${found.map(({ name, lost: part }) => `${name} ${lost({ value: part })}`).join(", ")}.`);
  byId("at").value = (100 * Math.log(seconds / shortest)) / Math.log(longest / shortest);
  byId("at").setAttribute("aria-valuetext", said);
  byId("at-said").textContent = said;
  const isRead = readAt !== null;
  view.data("at", isRead ? [{ seconds }] : []).data("read", isRead ? found.map((each) => ({ ...each, lost: Math.max(each.lost, Number.MIN_VALUE) })) : []).run();
}
