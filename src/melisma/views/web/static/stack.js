// Bars of several layers, side by side.

import { el, legend, say, sized } from "./dom.js";
import { ink, number } from "./format.js";

const HEIGHT = 220;
const LEFT = 52;
const BOTTOM = 36;

export class Stack {
  constructor({ title, x, colours, digits = 0 }) {
    Object.assign(this, { x, colours, digits, numbers: [], layers: {} });
    this.canvas = el("canvas", { role: "img", "aria-label": title });
    this.said = el("p", { class: "said" }, "");
    this.root = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, title),
      legend(colours),
      this.canvas,
      this.said,
    );
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    new ResizeObserver(() => this.paint()).observe(this.root);
  }

  /** Draw layers, each a value for every one of `numbers`. */
  draw(numbers, layers) {
    Object.assign(this, { numbers, layers });
    this.paint();
  }

  paint() {
    const width = this.root.clientWidth - 26;
    if (width < 80 || !this.numbers.length) return;
    const context = sized(this.canvas, width, HEIGHT);
    context.font = "12px system-ui, sans-serif";
    const total = (i) => Object.values(this.layers).reduce((sum, layer) => sum + (layer[i] ?? 0), 0);
    const top = Math.max(...this.numbers.map((_, i) => total(i))) || 1;
    const tall = HEIGHT - BOTTOM - 8;
    this.#axis(context, top, tall, width);
    this.step = (width - LEFT) / this.numbers.length;
    this.numbers.forEach((_, i) => {
      let y = HEIGHT - BOTTOM;
      for (const [name, layer] of Object.entries(this.layers)) {
        const height = (tall * (layer[i] ?? 0)) / top;
        context.fillStyle = this.colours[name];
        context.fillRect(
          LEFT + i * this.step,
          y - height,
          Math.max(this.step - (this.step > 5 ? 1 : 0), 0.7),
          height,
        );
        y -= height;
      }
    });
    this.#numbers(context, width);
  }

  #axis(context, top, tall, width) {
    const step = [1, 2, 5, 10]
      .map((part) => part * 10 ** Math.floor(Math.log10(top) - 0.5))
      .find((part) => top / part <= 5);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let value = 0; value <= top; value += step) {
      const y = HEIGHT - BOTTOM - (tall * value) / top;
      context.fillStyle = ink("--line");
      context.fillRect(LEFT, y, width, 1);
      context.fillStyle = ink("--dim");
      context.fillText(number(value, step < 1 ? Math.ceil(-Math.log10(step)) : 0), LEFT - 6, y);
    }
  }

  #numbers(context, width) {
    context.textAlign = "center";
    context.fillStyle = ink("--dim");
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * this.step >= 30) ?? 1000;
    this.numbers.forEach((told, i) => {
      if (told % every === 0 || every === 1)
        context.fillText(number(told), LEFT + (i + 0.5) * this.step, HEIGHT - BOTTOM + 12);
    });
    context.fillText(this.x, LEFT + (width - LEFT) / 2, HEIGHT - 6);
  }

  #point(event) {
    const i = Math.floor((event.clientX - this.canvas.getBoundingClientRect().left - LEFT) / this.step);
    if (!(i in this.numbers)) return;
    const parts = Object.entries(this.layers).map(
      ([name, layer]) => `${name} ${number(layer[i], this.digits)}`,
    );
    say(this.said, `${this.x} ${number(this.numbers[i])}: ${parts.join(", ")}`);
  }
}
