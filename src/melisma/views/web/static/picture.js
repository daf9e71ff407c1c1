// A picture: a caption with buttons that save it, what its marks mean, and a canvas.

import { el, sized } from "./dom.js";
import { onPaper } from "./format.js";
import { legend } from "./keys.js";
import { printed, saver } from "./paper.js";

const EDGES = 26; // pixels left and right of what is drawn

/**
 * Pictures give `paint(context, width, height, data)` and `height(width, data)`; they may give `keys(data)`,
 * `isEmpty(data)`, `sheet(data)`, and `overlay(context, data)`, which is seen on the screen alone.
 */
export class Picture {
  constructor({ title, full = false, help = "", note = "" }) {
    Object.assign(this, { title, data: undefined });
    this.canvas = el("canvas", { tabindex: help ? "0" : null, role: "img", "aria-label": title + help });
    this.said = el("p", { class: "said", "aria-live": "polite" });
    this.note = el("p", { class: "dim" }, note);
    this.legend = el("p", { class: "legend" });
    this.saver = saver(this);
    this.root = el(
      "figure",
      { class: full ? "chart full" : "chart" },
      el("figcaption", {}, el("span", {}, title), this.saver),
      this.note,
      this.legend,
      this.canvas,
      this.said,
    );
    new ResizeObserver(() => this.#width() !== this.width && this.show()).observe(this.root);
  }

  keys() {
    return [];
  }

  isEmpty() {
    return false;
  }

  overlay() {}

  /** How large it is on paper. */
  sheet(data) {
    return { width: 480, height: this.height(480, data) };
  }

  /** Draw what `source()` gives; paper asks it again, as colours there are others. */
  draw(source) {
    this.source = source;
    this.data = source();
    this.#tell();
    this.show();
  }

  #width() {
    return this.root.clientWidth - EDGES;
  }

  show() {
    this.width = this.#width();
    if (this.width < 60 || this.data === undefined) return;
    const empty = this.isEmpty(this.data);
    this.canvas.hidden = this.saver.hidden = empty;
    if (empty) return;
    const height = this.height(this.width, this.data);
    const context = sized(this.canvas, this.width, height);
    this.paint(context, this.width, height, this.data);
    this.overlay(context, this.data);
  }

  /** Say what the marks mean, if that is not said already. */
  #tell() {
    const keys = this.isEmpty(this.data) ? [] : this.keys(this.data);
    const shape = JSON.stringify([document.documentElement.dataset.theme, keys]);
    if (shape === this.shape) return;
    this.shape = shape;
    const made = legend(keys, this.choose && ((key) => this.choose(key)));
    this.legend.replaceWith(made);
    this.legend = made;
    this.legend.hidden = !keys.length;
  }

  /** The picture as SVG, in the colours of paper. */
  print() {
    const drawing = onPaper(() => {
      const data = this.source();
      const { width, height } = this.sheet(data);
      const keys = this.keys(data).filter((key) => !key.off);
      const paint = (context) => this.paint(context, width, height, data);
      return printed({ title: this.title, width, height, keys, paint });
    });
    this.show(); // to know again where things are on the screen
    return drawing;
  }
}
