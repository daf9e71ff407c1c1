// Bars of several layers, side by side.

import { Axes, everySo } from "./axes.js";
import { say } from "./dom.js";
import { number } from "./format.js";
import { boxes } from "./keys.js";
import { Picture } from "./picture.js";
import { hideTip, showTip } from "./tip.js";

const HEIGHT = 240;

export class Stack extends Picture {
  constructor({ title, x, y, colours, digits = 0 }) {
    super({ title, help: ". Arrow keys say the values of a bar." });
    Object.assign(this, { across: x, up: y, colours, digits });
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  isEmpty({ numbers }) {
    return !numbers.length;
  }

  keys({ layers }) {
    return boxes(this.colours).filter(({ name }) => layers[name]?.some(Boolean));
  }

  height() {
    return HEIGHT;
  }

  sheet() {
    return { width: 640, height: 260 };
  }

  /** `layers` are a value for each of `numbers`, by the names of the colours. */
  paint(context, width, height, { numbers, layers }) {
    const total = (i) => Object.values(layers).reduce((sum, layer) => sum + (layer[i] ?? 0), 0);
    const top = numbers.reduce((most, _, i) => Math.max(most, total(i)), 0) || 1;
    const x = [numbers[0] - 0.5, numbers.at(-1) + 0.5];
    this.axes = new Axes({ width, height, x, y: [0, 1.04 * top], labels: [this.across, this.up] });
    const [step, tall] = this.axes.scales;
    const every = everySo(step, 34);
    this.axes.draw(
      context,
      numbers.filter((one) => one % every === 0),
    );
    numbers.forEach((one, i) => {
      let [left, y] = this.axes.at(one - 0.5, 0);
      for (const [name, layer] of Object.entries(layers)) {
        const high = tall * (layer[i] ?? 0);
        y -= high;
        context.fillStyle = this.colours[name];
        if (high) context.fillRect(left, y, Math.max(step - (step > 5 ? 1 : 0), 0.7), high);
      }
    });
  }

  #point(event) {
    const { numbers } = this.data;
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const i = numbers.indexOf(Math.round(this.axes.valueAt(x)));
    if (i < 0) return hideTip();
    showTip(event, [`${this.across} ${number(numbers[i])}`, ...this.#tell(i)]);
  }

  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !this.data?.numbers.length) return;
    event.preventDefault();
    this.#tell(Math.max(0, Math.min(this.data.numbers.length - 1, (this.at ?? -1) + step)));
  }

  /** Say what a bar is made of. */
  #tell(i) {
    const { numbers, layers } = this.data;
    const parts = Object.entries(layers).map(([name, layer]) => `${name} ${number(layer[i], this.digits)}`);
    this.at = i;
    say(this.said, `${this.across} ${number(numbers[i])}: ${parts.join(", ")}`);
    return parts;
  }
}
