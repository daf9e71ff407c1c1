// A matrix of cells, learners down and cycles across, that says what a cell is.

import { el, pixels, say, sized } from "./dom.js";
import { ink, number, short } from "./format.js";

const HEAD = 20;
const TALL = 560;

/** `paint(row, column)` gives a pixel, 0 for nothing; `words(row, column)` what it is. */
export class Matrix {
  constructor({ title, note = "", across = "cycle", first = 1, label }) {
    Object.assign(this, { across, first });
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": `${title}. Arrow keys say what a cell is.`,
    });
    this.said = el("p", { class: "said", "aria-live": "polite" }, "");
    this.note = el("p", { class: "dim" }, note);
    this.root = el(
      "figure",
      { class: "chart full" },
      el("figcaption", {}, title),
      this.note,
      label,
      this.canvas,
      this.said,
    );
    this.at = null;
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.names && this.paint()).observe(this.root);
  }

  /** Draw `names` × `columns` cells. */
  draw(names, columns, paint, words) {
    Object.assign(this, { names, columns, cell: paint, words });
    this.paint();
  }

  paint() {
    const width = this.root.clientWidth - 26;
    if (width < 60 || !this.names.length || !this.columns) return;
    this.left = width < 560 ? 84 : 140;
    this.lane = Math.max(2, Math.min(22, TALL / this.names.length));
    this.step = Math.min(60, (width - this.left) / this.columns);
    const context = sized(this.canvas, width, HEAD + this.lane * this.names.length);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.#heads(context);
    const picture = pixels(this.columns, this.names.length, this.cell);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, this.left, HEAD, this.columns * this.step, this.names.length * this.lane);
    this.#grid(context);
    if (this.lane >= 11) this.#names(context);
    this.#ring(context);
  }

  #heads(context) {
    context.textAlign = "center";
    context.fillStyle = ink("--dim");
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * this.step >= 40) ?? 1000;
    for (let column = 0; column < this.columns; column++) {
      const told = column + this.first;
      if (told % every && every > 1) continue;
      context.fillText(number(told), this.left + (column + 0.5) * this.step, HEAD / 2);
    }
  }

  /** Lines between cells, where there is room for them. */
  #grid(context) {
    context.fillStyle = ink("--card");
    const { left, step, lane, columns, names } = this;
    for (let i = 1; i < columns && step > 5; i++)
      context.fillRect(left + i * step - 1, HEAD, 1, names.length * lane);
    for (let i = 1; i < names.length && lane > 5; i++)
      context.fillRect(left, HEAD + i * lane - 1, columns * step, 1);
  }

  #names(context) {
    context.textAlign = "right";
    context.fillStyle = ink("--dim");
    this.names.forEach((name, row) => {
      const y = HEAD + (row + 0.5) * this.lane;
      context.fillText(short(name, this.left > 100 ? 20 : 12), this.left - 8, y, this.left - 10);
    });
  }

  #ring(context) {
    if (!this.at || document.activeElement !== this.canvas) return;
    context.strokeStyle = ink("--focus");
    context.lineWidth = 2;
    const [row, column] = this.at;
    context.strokeRect(
      this.left + column * this.step,
      HEAD + row * this.lane,
      Math.max(this.step, 4),
      Math.max(this.lane, 4),
    );
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - HEAD) / this.lane);
    const column = Math.floor((event.clientX - box.left - this.left) / this.step);
    if (row in this.names && column >= 0 && column < this.columns) this.#tell(row, column);
  }

  #tell(row, column) {
    this.at = [row, column];
    const words = this.cell(row, column) ? this.words(row, column) : "nothing";
    say(this.said, `${this.names[row]}, ${this.across} ${number(column + this.first)}: ${words}`);
  }

  #key(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const move = moves[event.key];
    if (!move || !this.names?.length) return;
    event.preventDefault();
    const [row, column] = this.at ?? [0, -1];
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.#tell(within(row + move[0], this.names.length), within(column + move[1], this.columns));
    this.paint();
  }
}
