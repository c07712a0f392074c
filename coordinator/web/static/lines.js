// Lines of the last commits of a stream over time: lag, delay, files and rows. The right edge is now.

import { clock, delay, duration, h, number, setAttribute, setSince, setText } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [100, 30];

/** The measures of a commit: a name, its value in a cut, and the text of a value. */
const MEASURES = [
  ["Lag at commit", (cut) => lagOf(cut), duration],
  ["Delay", (cut) => cut.delay, delay],
  ["Files", (cut) => cut.files, number],
  ["Rows", (cut) => cut.rows, number],
];

/** Return the age of the watermark when the commit was visible. */
function lagOf(cut) {
  const known = cut.watermark !== null && cut.watermark !== undefined;
  return known ? Math.max(0, (cut.visible ?? cut.time) - cut.watermark) : null;
}

/** One line for each measure. Nodes stay, and only their values change. */
export class Lines {
  constructor(name) {
    this.name = name;
    this.cuts = [];
    this.figures = MEASURES.map(([measure]) => figureOf(measure));
    this.node = h("div", { class: "lines", role: "group", "aria-label": `Last commits of stream ${name}` });
    this.node.append(...this.figures.map((each) => each.node));
    this.node.hidden = true;
  }

  update(cuts) {
    this.cuts = cuts;
    this.draw();
  }

  /** Draw the lines as of now. */
  draw() {
    const now = Math.max(clock.now(), this.cuts.at(-1)?.time ?? 0);
    const first = this.cuts.find((cut) => cut.files !== null && cut.files !== undefined);
    this.node.hidden = first === undefined;
    if (this.node.hidden) return;
    const span = Math.max(1, now - first.time);
    MEASURES.forEach(([measure, valueOf, format], index) => {
      const points = this.cuts.map((cut) => [cut.time, valueOf(cut)]).filter(([, value]) => Number.isFinite(value));
      drawLine(this.figures[index], points, { first: first.time, span, measure, format });
    });
  }
}

function figureOf(measure) {
  const [newest, most, since] = ["b", "span", "span"].map((tag) => h(tag, {}));
  const path = document.createElementNS(SVG, "path");
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" })) {
    svg.setAttribute(name, value);
  }
  svg.append(path);
  const caption = h("figcaption", {}, `${measure} `, newest, " ", most);
  const axis = h("p", { class: "axis" }, h("span", {}, since, " ago"), h("span", { text: "now" }));
  return { node: h("figure", {}, caption, svg, axis), newest, most, since, svg, path };
}

function drawLine(figure, points, { first, span, measure, format }) {
  const highest = Math.max(...points.map(([, value]) => value));
  const last = points.at(-1)?.[1];
  const shown = points.length ? format(last) : "–";
  setText(figure.newest, shown);
  setText(figure.most, points.length ? `max ${format(highest)}` : "");
  setAttribute(figure.svg, "aria-label", `${measure} of the last ${points.length} commits: the newest ${shown}, at most ${points.length ? format(highest) : "–"}`);
  const places = points.map(([time, value]) => {
    const x = (WIDTH * (time - first)) / span;
    const y = HEIGHT - 1 - ((HEIGHT - 2) * value) / (highest || 1);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  setAttribute(figure.path, "d", places.length ? `M${places.join("L")}h0` : "");
  setSince(figure.since, first);
}
