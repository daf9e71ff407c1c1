// Line charts: uPlot, in the page's colours.

import uPlot from "./vendor/uPlot.js";

import { el } from "./dom.js";
import { ink, number } from "./format.js";

const HEIGHT = 220;
const DOTS = 60; // with more points than these a line has no dots

/** A titled chart that fits its place. */
export class Chart {
  #plot = null;
  #shape = "";
  #width = 0;
  #drawn = null;

  constructor({ title, x = "cycle", y, digits = 2, whole = x === "cycle", low = null, bound = null }) {
    this.facts = { title, x, y, digits, whole, low, bound };
    this.place = el("div", { class: "plot" });
    this.note = el("p", { class: "dim", hidden: true });
    this.root = el("figure", { class: "chart" }, el("figcaption", {}, title), this.place, this.note);
    new ResizeObserver(() => this.#resize()).observe(this.place);
  }

  /** Draw lines: {name, colour, points: [x, y], dash?, band?: [low, high]}. */
  draw(lines) {
    const shown = lines.filter((line) => line.points[0].length);
    this.#drawn = shown;
    this.note.hidden = shown.length > 0;
    this.place.hidden = shown.length === 0;
    if (!shown.length) return void (this.note.textContent = "Nothing to show so far.");
    const data = joined(shown);
    const dotted = data[0].length <= DOTS;
    const theme = document.documentElement.dataset.theme;
    const shape = JSON.stringify([theme, dotted, shown.map((s) => [s.name, s.colour, !!s.band])]);
    if (this.#plot && shape === this.#shape) return this.#plot.setData(data);
    this.#plot?.destroy();
    this.#shape = shape;
    this.#width = Math.max(200, this.place.clientWidth);
    this.#plot = new uPlot(this.#options(shown, dotted), data, this.place);
  }

  #resize() {
    const width = this.place.clientWidth;
    if (!this.#plot || !width || width === this.#width) return;
    this.#width = width;
    this.#plot.setSize({ width, height: HEIGHT });
  }

  #options(lines, dotted) {
    const { x, y, digits, whole, low, bound } = this.facts;
    const axis = {
      stroke: ink("--dim"),
      grid: { stroke: ink("--line"), width: 1 },
      ticks: { stroke: ink("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      labelSize: 20,
    };
    const several = lines.length > 1 || lines[0].named;
    return {
      width: this.#width,
      height: HEIGHT,
      legend: { show: several, markers: { width: 2 } },
      cursor: { points: { size: 7 }, drag: { x: true, y: false } },
      scales: {
        x: { time: false, range: wide },
        y: { range: (plot, min, max) => heights(min, max, low, bound) },
      },
      axes: [
        { ...axis, label: x, incrs: whole ? WHOLE : undefined, size: 34 },
        { ...axis, label: y, size: 52 },
      ],
      series: [
        { label: x.split(" ")[0], value: (plot, at) => number(at, whole ? 0 : 2) },
        ...lines.flatMap((line) => series(line, dotted, digits)),
      ],
      bands: bands(lines),
    };
  }
}

const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

const wide = (plot, min, max) => (min === max ? [min - 0.5, max + 0.5] : [min, max]);

/** A little more than there is; an interval may be wider than what can be (`bound`). */
function heights(min, max, low, bound) {
  if (min == null) return [0, 1];
  const pad = 0.06 * (max - min) || 0.05 * Math.abs(max) || 0.5;
  const [from, to] = [low === null ? min - pad : Math.min(low, min), max + pad];
  return bound ? [Math.max(from, bound[0]), Math.min(to, bound[1])] : [from, to];
}

function series(line, dotted, digits) {
  const own = {
    label: line.name,
    stroke: line.colour,
    width: 2,
    dash: line.dash,
    spanGaps: true,
    points: { show: dotted && !line.dash, size: 5, fill: line.colour },
    value: (plot, value) => number(value, digits),
  };
  const edge = { ...own, label: "", width: 0, points: { show: false }, stroke: "transparent", class: "edge" };
  return line.band ? [own, edge, edge] : [own];
}

/** Fill between a line's low and high edge, which stand behind it. */
function bands(lines) {
  const found = [];
  let at = 1;
  for (const line of lines) {
    if (line.band) found.push({ series: [at + 2, at + 1], fill: `${line.colour}28` });
    at += line.band ? 3 : 1;
  }
  return found;
}

/** All lines over one x, with gaps where a line has no point. */
function joined(lines) {
  const tables = lines.map(({ points: [x, y], band }) => (band ? [x, y, ...band] : [x, y]));
  return tables.length > 1 ? uPlot.join(tables) : tables[0];
}

/** Charts that are drawn together: pairs of a chart and a function that gives its lines. */
export class Charts {
  constructor(pairs) {
    this.pairs = pairs;
    this.root = el("div", { class: "charts" }, ...pairs.map(([chart]) => chart.root));
  }

  draw() {
    for (const [chart, lines] of this.pairs) {
      const found = lines();
      chart.root.hidden = found === null;
      if (found !== null) chart.draw(found);
    }
  }
}
