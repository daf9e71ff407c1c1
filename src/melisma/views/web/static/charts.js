// Line charts: one line each for schemes, tasks or figures, with an interval as a band.

import { Axes } from "./axes.js";
import { el, say } from "./dom.js";
import { ink, number, plainNumber } from "./format.js";
import { dot, line as straight } from "./keys.js";
import { Picture } from "./picture.js";

const HEIGHT = 230;
const DOTS = 60; // with more points than these a line has no dots
const HELP = ". Arrow keys say values; drag or + to zoom in, double click or Escape to see all.";

/** A chart of lines: {name, colour, points: [x, y], dash?, band?: [low, high], named?}. */
export class Chart extends Picture {
  constructor({ title, x = "cycle", y, digits = 2, whole = x === "cycle", low = null, bound = null }) {
    super({ title, help: HELP });
    Object.assign(this, { across: x, up: y, digits, whole, low, bound });
    this.range = null; // of x, where somebody zoomed in
    this.hidden = new Set(); // names of lines
    this.at = null; // the x that is looked at
    this.listen();
  }

  isEmpty(lines) {
    return !lines.some((one) => one.points[0].length);
  }

  draw(source) {
    super.draw(() => {
      const lines = source();
      return lines.map((one) => ({ ...one, off: lines.length > 1 && this.hidden.has(one.name) }));
    });
    const empty = this.isEmpty(this.data);
    this.note.hidden = !empty;
    say(this.note, empty ? "Nothing to show so far." : "");
  }

  keys(lines) {
    const several = lines.length > 1 || lines[0].named;
    return several
      ? lines
          .filter(({ points }) => points[0].length)
          .map(({ name, colour, dash, off }) => ({ name, kind: "line", colour, dash, off }))
      : [];
  }

  /** Show a line, or hide it. */
  choose({ name }) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    super.draw(this.source);
  }

  height() {
    return HEIGHT;
  }

  sheet() {
    return { width: 480, height: 290 };
  }

  paint(context, width, height, lines) {
    const shown = lines.filter((one) => one.points[0].length && !one.off);
    const labels = [this.across, this.up];
    this.axes = new Axes({ width, height, ...this.#ranges(shown), labels, whole: this.whole });
    this.axes.draw(context);
    const dotted = Math.max(0, ...shown.map((one) => one.points[0].length)) <= DOTS;
    this.axes.within(context, 0, () => {
      for (const one of shown) if (one.band) this.#band(context, one);
    });
    this.axes.within(context, 4, () => {
      for (const one of shown) this.#line(context, one, dotted && !one.dash);
    });
  }

  /** A little more than there is. */
  #ranges(lines) {
    const xs = lines.flatMap((one) => [one.points[0][0], one.points[0].at(-1)]);
    const whole = lines.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
    const x = this.range ?? (whole[0] === whole[1] ? [whole[0] - 0.5, whole[1] + 0.5] : whole);
    let [min, max] = [Infinity, -Infinity];
    for (const { points, band } of lines)
      for (const ys of [points[1], ...(band ?? [])])
        ys.forEach((y, i) => {
          if (points[0][i] < x[0] || points[0][i] > x[1]) return;
          if (y < min) min = y;
          if (y > max) max = y;
        });
    return { x, y: heights(min, max, this.low, this.bound) };
  }

  #line(context, { points: [xs, ys], colour, dash = [] }, dotted) {
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.setLineDash(dash);
    context.beginPath();
    xs.forEach((x, i) => context.lineTo(...this.axes.at(x, ys[i])));
    context.stroke();
    context.setLineDash([]);
    if (dotted) xs.forEach((x, i) => dot(context, ...this.axes.at(x, ys[i]), 2.6, colour));
  }

  #band(context, { points: [xs], band: [low, high], colour }) {
    context.globalAlpha = 0.16;
    context.fillStyle = colour;
    context.beginPath();
    xs.forEach((x, i) => context.lineTo(...this.axes.at(x, low[i])));
    for (let i = xs.length - 1; i >= 0; i--) context.lineTo(...this.axes.at(xs[i], high[i]));
    context.closePath();
    context.fill();
    context.globalAlpha = 1;
  }

  /** Where somebody looks, and what is being chosen. */
  overlay(context, lines) {
    const { axes, at, drag } = this;
    if (drag && drag[0] !== drag[1]) {
      context.globalAlpha = 0.12;
      context.fillStyle = ink("--ink");
      context.fillRect(Math.min(...drag), axes.top, Math.abs(drag[1] - drag[0]), axes.bottom - axes.top);
      context.globalAlpha = 1;
    }
    if (at === null || at < axes.x[0] || at > axes.x[1]) return;
    const [x] = axes.at(at, 0);
    straight(context, [x, axes.top, x, axes.bottom], ink("--dim"), [3, 3]);
    for (const { points, colour, off } of lines) {
      const i = points[0].indexOf(at);
      if (i >= 0 && !off) dot(context, ...axes.at(at, points[1][i]), 4, colour);
    }
  }

  listen() {
    const { canvas } = this;
    const where = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse") this.drag = [where(event), where(event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag[1] = where(event);
      this.#look(nearest(this.#xs(), this.axes.valueAt(where(event))));
    });
    canvas.addEventListener("pointerup", () => this.#zoom());
    canvas.addEventListener("pointerleave", () => ((this.drag = null), this.#look(null)));
    canvas.addEventListener("dblclick", () => ((this.range = null), this.show()));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #zoom() {
    const [from, to] = (this.drag ?? []).toSorted((one, two) => one - two).map((x) => this.axes.valueAt(x));
    const far = this.drag && Math.abs(this.drag[1] - this.drag[0]) > 5;
    this.drag = null;
    if (far) this.range = [Math.max(from, this.axes.x[0]), Math.min(to, this.axes.x[1])];
    this.show();
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") ((this.range = null), this.#look(null));
    if (event.key === "+" || event.key === "=") this.#closer();
    if (!step) return;
    event.preventDefault();
    const xs = this.#xs();
    const here = xs.indexOf(this.at);
    this.#look(
      xs[here < 0 ? (step > 0 ? 0 : xs.length - 1) : Math.max(0, Math.min(xs.length - 1, here + step))],
    );
  }

  /** Show half of what is in sight, around where somebody looks. */
  #closer() {
    const [from, to] = this.axes.x;
    const [middle, half] = [this.at ?? (from + to) / 2, (to - from) / 4];
    const left = Math.min(Math.max(from, middle - half), to - 2 * half);
    this.range = [left, left + 2 * half];
    this.show();
  }

  /** Every x that is in sight, in order. */
  #xs() {
    const shown = this.data.filter((one) => !one.off);
    const [from, to] = this.axes.x;
    const xs = new Set(shown.flatMap((one) => one.points[0].filter((x) => x >= from && x <= to)));
    return [...xs].sort((one, two) => one - two);
  }

  /** A value; with digits of null as many as tell something. */
  #text(value) {
    return this.digits === null ? plainNumber(value) : number(value, this.digits);
  }

  #look(x) {
    this.at = x ?? null;
    const known = this.data.flatMap(({ name, points, off }) => {
      const i = points[0].indexOf(x);
      return i < 0 || off
        ? []
        : [`${this.data.length > 1 ? `${name} ` : ""}${this.#text(points[1][i])}`];
    });
    const where = `${this.across.split(" ")[0]} ${number(x, this.whole ? 0 : 2)}`;
    say(this.said, x == null ? "" : `${where}: ${known.join(", ")}`);
    this.show();
  }
}

/** The one of some sorted numbers that is nearest. */
const nearest = (numbers, wanted) =>
  numbers.reduce((best, x) => (Math.abs(x - wanted) < Math.abs(best - wanted) ? x : best), numbers[0]);

/** A little more than there is; an interval may be wider than what can be (`bound`). */
function heights(min, max, low, bound) {
  if (!(min <= max)) return [0, 1];
  const pad = 0.06 * (max - min) || 0.05 * Math.abs(max) || 0.5;
  const [from, to] = [low === null ? min - pad : Math.min(low, min), max + pad];
  return bound ? [Math.max(from, bound[0]), Math.min(to, bound[1])] : [from, to];
}

/** Charts that are drawn together: pairs of a chart and a function that gives its lines. */
export class Charts {
  constructor(pairs) {
    this.pairs = pairs;
    this.root = el("div", { class: "charts" }, ...pairs.map(([chart]) => chart.root));
  }

  draw() {
    for (const [chart, lines] of this.pairs) {
      chart.root.hidden = lines() === null;
      if (!chart.root.hidden) chart.draw(lines);
    }
  }
}
