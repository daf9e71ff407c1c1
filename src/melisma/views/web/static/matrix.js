// A matrix of cells, learners down and cycles across, that says what a cell is.

import { everySo } from "./axes.js";
import { pixels, say, textWidth } from "./dom.js";
import { font, ink, number, short } from "./format.js";
import { Picture } from "./picture.js";
import { hideTip, showTip } from "./tip.js";

const HEAD = 20;
const LEFT = 140; // pixels of names
const CELL = 60; // the widest
const TALL = 560;
const NAMED = 11; // a cell of fewer pixels has no room for a name beside it

/**
 * Draws {names, columns, cell, words, keys, heads}: `cell(row, column)` gives a pixel, 0 for nothing,
 * `words(row, column)` what it is, `text(row, column)` a number to stand in it where there is room; `heads` are
 * names of columns where they are not numbers.
 */
export class Matrix extends Picture {
  constructor({ title, note = "", across = "cycle" }) {
    super({ title, note, full: true, help: ". Arrow keys say what a cell is." });
    this.across = across;
    this.at = null;
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  isEmpty({ names, columns }) {
    return !names.length || !columns;
  }

  keys({ keys }) {
    return keys;
  }

  height(width, data) {
    this.#measure(width, data);
    return this.head + this.lane * data.names.length + 2;
  }

  sheet(data) {
    const width = Math.max(360, Math.min(640, LEFT + CELL * data.columns + 2));
    return { width, height: this.height(width, data) };
  }

  #measure(width, { names, columns, heads }) {
    this.left = width < 360 ? 84 : LEFT;
    this.lane = Math.max(2, Math.min(22, TALL / names.length));
    this.step = Math.min(CELL, (width - this.left) / columns);
    this.head = heads && Math.min(this.step, this.lane) >= NAMED ? 100 : HEAD;
  }

  paint(context, width, height, data) {
    this.#measure(width, data);
    Object.assign(context, { font: font(), textBaseline: "middle", fillStyle: ink("--dim") });
    if (this.head > HEAD) this.#upright(context, data.heads);
    else this.#numbers(context, data.columns);
    const picture = pixels(data.columns, data.names.length, data.cell);
    context.imageSmoothingEnabled = false;
    const [across, down] = [data.columns * this.step, data.names.length * this.lane];
    context.drawImage(picture, this.left, this.head, across, down);
    this.#grid(context, data);
    if (data.text && this.lane >= 16) this.#texts(context, data);
    if (this.lane >= NAMED) this.#names(context, data.names);
  }

  #numbers(context, columns) {
    context.textAlign = "right";
    context.fillText(this.across, this.left - 8, HEAD / 2);
    context.textAlign = "center";
    const every = everySo(this.step, 40);
    for (let column = every > 1 ? every : 1; column <= columns; column += every)
      context.fillText(number(column), this.left + (column - 0.5) * this.step, HEAD / 2);
  }

  #upright(context, heads) {
    context.textAlign = "left";
    heads.forEach((name, column) => {
      context.save();
      context.translate(this.left + (column + 0.5) * this.step, this.head - 4);
      context.rotate(-Math.PI / 2);
      context.fillText(short(name, 16), 0, 0, this.head - 8);
      context.restore();
    });
  }

  /** Lines between cells, where there is room for them. */
  #grid(context, { columns, names }) {
    context.fillStyle = ink("--card");
    const { left, head, step, lane } = this;
    for (let i = 1; i < columns && step > 5; i++)
      context.fillRect(left + i * step - 1, head, 1, names.length * lane);
    for (let i = 1; i < names.length && lane > 5; i++)
      context.fillRect(left, head + i * lane - 1, columns * step, 1);
  }

  /** Numbers in cells, if the longest fits: light on dark colours, dark on light ones. */
  #texts(context, { names, columns, cell, text }) {
    if (this.step < 22) return;
    const texts = names.map((_, row) => Array.from({ length: columns }, (_, column) => text(row, column)));
    const widest = Math.max(...texts.flat().map((one) => textWidth(one, font(11))));
    if (widest + 6 > this.step) return;
    Object.assign(context, { font: font(11), textAlign: "center" });
    texts.forEach((line, row) =>
      line.forEach((one, column) => {
        const colour = cell(row, column);
        if (!colour) return;
        context.fillStyle = isPale(colour) ? "#000" : "#fff";
        const x = this.left + (column + 0.5) * this.step;
        context.fillText(one, x, this.head + (row + 0.5) * this.lane);
      }),
    );
    context.font = font();
  }

  #names(context, names) {
    context.textAlign = "right";
    context.fillStyle = ink("--dim");
    names.forEach((name, row) => {
      const y = this.head + (row + 0.5) * this.lane;
      context.fillText(short(name, this.left > 100 ? 20 : 12), this.left - 8, y, this.left - 10);
    });
  }

  overlay(context) {
    if (!this.at || document.activeElement !== this.canvas) return;
    context.strokeStyle = ink("--focus");
    context.lineWidth = 2;
    const [row, column] = this.at;
    const { left, head, step, lane } = this;
    context.strokeRect(left + column * step, head + row * lane, Math.max(step, 4), Math.max(lane, 4));
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - this.head) / this.lane);
    const column = Math.floor((event.clientX - box.left - this.left) / this.step);
    if (row in this.data.names && column >= 0 && column < this.data.columns) {
      const [head, words] = this.#tell(row, column);
      showTip(event, [head, words]);
    } else hideTip();
  }

  #tell(row, column) {
    const { names, heads, cell, words } = this.data;
    this.at = [row, column];
    const where = heads ? `to ${heads[column]}` : `${this.across} ${number(column + 1)}`;
    const told = [`${names[row]}, ${where}`, cell(row, column) ? words(row, column) : "nothing"];
    say(this.said, told.join(": "));
    return told;
  }

  #key(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const move = moves[event.key];
    if (!move || !this.data?.names.length) return;
    event.preventDefault();
    const [row, column] = this.at ?? [0, -1];
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.#tell(within(row + move[0], this.data.names.length), within(column + move[1], this.data.columns));
    this.show();
  }
}

/** Whether black is easier to read on a pixel than white: by its relative luminance. */
function isPale(pixel) {
  const [red, green, blue] = [0, 8, 16].map((shift) => (((pixel >>> shift) & 255) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}
