// Axes: round numbers along two sides, and where a value is.

import { textWidth } from "./dom.js";
import { font, ink, number } from "./format.js";
import { line } from "./keys.js";

const LABEL = 20; // pixels of an axis's label
const TEXT = 18; // of its numbers

/** Round numbers from `low` to `high`, at most `most` steps apart: {values, text(value)}. */
export function ticks(low, high, most, whole = false) {
  const rough = (high - low) / Math.max(1, most);
  if (!(rough > 0)) return { values: [low], text: (value) => number(value) };
  const size = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].map((part) => part * size).find((step) => step >= 0.999 * rough);
  const step = whole ? Math.max(1, round) : round;
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) values.push(i * step);
  return { values, text: (value) => number(value + 0, digits) };
}

/** Of [1, 2, 5, 10, …] the first that leaves `apart` pixels where one is `unit` pixels. */
export const everySo = (unit, apart) =>
  [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((step) => step * unit >= apart) ?? 10_000;

export class Axes {
  /** `x` and `y` are [from, to]; `labels` are what they are, with their units. */
  constructor({ width, height, x, y, labels, whole = false }) {
    Object.assign(this, { x, y, labels, whole, top: 10, right: width - 16 });
    this.bottom = height - LABEL - TEXT;
    this.up = ticks(...y, (this.bottom - this.top) / 30);
    this.wide = Math.max(0, ...this.up.values.map((value) => textWidth(this.up.text(value), font())));
    this.left = Math.ceil(LABEL + this.wide + 8);
    this.scales = [
      (this.right - this.left) / (x[1] - x[0] || 1),
      (this.bottom - this.top) / (y[1] - y[0] || 1),
    ];
  }

  /** Pixels of a value. */
  at(x, y) {
    return [this.left + (x - this.x[0]) * this.scales[0], this.bottom - (y - this.y[0]) * this.scales[1]];
  }

  /** The value across at a pixel. */
  valueAt(pixel) {
    return this.x[0] + (pixel - this.left) / this.scales[0];
  }

  /** Numbers below: round ones, or those that are given. */
  draw(context, values = null) {
    const most = Math.max(1, (this.right - this.left) / 70);
    const across = ticks(...this.x, most, this.whole);
    Object.assign(context, { font: font(), textBaseline: "middle", fillStyle: ink("--dim") });
    context.textAlign = "right";
    for (const value of this.up.values) {
      const [, y] = this.at(this.x[0], value);
      line(context, [this.left, y, this.right, y], ink("--line"));
      context.fillText(this.up.text(value), this.left - 6, y);
    }
    context.textAlign = "center";
    for (const value of values ?? across.values) {
      const [x] = this.at(value, this.y[0]);
      if (!values) line(context, [x, this.top, x, this.bottom], ink("--line"));
      context.fillText(values ? number(value) : across.text(value), x, this.bottom + 11);
    }
    line(context, [this.left, this.bottom, this.right, this.bottom], ink("--dim"));
    line(context, [this.left, this.top, this.left, this.bottom], ink("--dim"));
    this.#labels(context);
  }

  #labels(context) {
    const [across, up] = this.labels;
    context.fillText(across, (this.left + this.right) / 2, this.bottom + TEXT + LABEL / 2 + 2);
    context.save();
    context.translate(LABEL / 2 - 2, (this.top + this.bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(up, 0, 0);
    context.restore();
  }

  /** Paint what stays between the axes, or `spare` pixels beyond. */
  within(context, spare, paint) {
    context.save();
    context.beginPath();
    const [width, height] = [this.right - this.left, this.bottom - this.top];
    context.rect(this.left - spare, this.top - spare, width + 2 * spare, height + 2 * spare);
    context.clip();
    paint();
    context.restore();
  }
}
