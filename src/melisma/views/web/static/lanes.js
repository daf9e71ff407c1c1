// The window onto the lanes: it scrolls and zooms over a canvas of its own size, which is painted anew
// whenever something moves.

import { el, sized } from "./dom.js";
import { HEAD, LANE, Scene, spanOf, until_s } from "./scene.js";

const MOST = 900; // pixels of a cycle
const PAPER = { width: 720, names: 120, height: 640 };

/** A place is [task, cycle, learner]. */
export class Lanes {
  constructor(app, painted) {
    this.app = app;
    this.painted = painted; // called after each painting
    this.seen = new Set(); // names of the marks that are in sight
    this.way = "cycle"; // or "clock"
    this.chosen = null; // a place
    this.follows = false; // what comes, at the right end
    this.stood = [0, 0]; // pixels scrolled: a view that is taken off the page forgets them
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.space = el("div", { class: "space" }, this.canvas);
    const help = "Timeline. Arrow keys move through cycles and learners, plus and minus zoom, 0 shows all.";
    this.view = el(
      "div",
      { class: "lanes", tabindex: "0", role: "application", "aria-label": help },
      this.space,
    );
    this.view.addEventListener("scroll", () => (this.#stay(), this.soon()), { passive: true });
    new ResizeObserver(() => this.#resized()).observe(this.view);
  }

  /** Keep where somebody looks; who looks at the end follows it. */
  #stay() {
    const { scrollLeft, scrollTop, scrollWidth, clientWidth } = this.view;
    if (!clientWidth) return;
    this.follows = scrollLeft + clientWidth >= scrollWidth - 8;
    this.stood = [scrollLeft, scrollTop];
  }

  #resized() {
    if (this.unit !== undefined && this.follows) this.grow();
    else this.soon();
  }

  /** Paint with the next frame, once. */
  soon() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => ((this.due = false), this.paint()));
  }

  get store() {
    return this.app.store;
  }

  get clock() {
    return this.way === "clock";
  }

  get names() {
    return this.view.clientWidth < 600 ? 84 : 140;
  }

  get room() {
    return Math.max(50, this.view.clientWidth - this.names);
  }

  get until_s() {
    return Math.max(until_s(this.store), 1e-3);
  }

  get cycles() {
    return Math.max(1, this.store.mostCycles);
  }

  /** Widths as at first: about six cycles, on a phone three; by the clock six of the longest deadlines. */
  reset() {
    this.lane = LANE;
    const many = this.room < 500 ? 3 : 6;
    const cycles = Math.max(this.cycles, this.store.ended ? 1 : (this.store.tasks[0]?.cycles ?? 1));
    this.width = Math.max(60, Math.min(240, this.room / Math.min(many, cycles)));
    const longest_s = Math.max(...this.store.tasks.map((_, task) => this.store.longestDeadline_s(task)), 1e-3);
    this.perSecond = this.room / Math.min(this.until_s, 6 * longest_s);
    this.spread();
    this.follows = !this.store.ended;
    this.view.scrollLeft = this.follows ? this.view.scrollWidth : 0;
    this.#stay();
    this.paint();
  }

  /** Zoom so that everything is in sight. */
  fit() {
    const height = this.view.clientHeight - HEAD;
    this.lane = Math.max(2, Math.min(LANE, height / Math.max(1, this.store.learners.length)));
    this.width = Math.min(MOST, this.room / this.cycles);
    this.perSecond = this.room / this.until_s;
    this.spread();
    this.#stay();
    this.paint();
  }

  /** Zoom by a factor; what is at `at` pixels from the lanes' left stays there. */
  zoom(factor, at = this.room / 2) {
    const before = this.unit;
    const place = (this.view.scrollLeft + at) / before;
    this.unit = Math.min(this.most, Math.max(this.least, before * factor));
    this.spread();
    this.view.scrollLeft = place * this.unit - at;
    this.#stay();
    this.paint();
  }

  /** Pixels of a cycle, or of a second. */
  get unit() {
    return this.clock ? this.perSecond : this.width;
  }

  set unit(pixels) {
    if (this.clock) this.perSecond = pixels;
    else this.width = pixels;
  }

  /** Cycles there are, or seconds. */
  get all() {
    return this.clock ? this.until_s : this.cycles;
  }

  get least() {
    return Math.min(this.unit, this.room / this.all);
  }

  get most() {
    return this.clock ? (MOST * 2) / Math.max(spanOf(this.store, 0), 1e-3) : MOST;
  }

  spread() {
    const width = `${Math.ceil(this.names + this.unit * (this.clock ? until_s(this.store) : this.store.mostCycles))}px`;
    const height = `${Math.ceil(HEAD + this.lane * this.store.learners.length)}px`;
    if (this.space.style.width !== width) this.space.style.width = width;
    if (this.space.style.height !== height) this.space.style.height = height;
  }

  /** Make room for what came, and look where one looked before: at the end, or at a place. */
  grow() {
    this.spread();
    const [left, top] = this.stood;
    this.view.scrollLeft = this.follows ? this.view.scrollWidth : left;
    this.view.scrollTop = top;
    this.paint();
  }

  /** What is in sight. */
  get scene() {
    const { clock, names, lane, unit, chosen } = this;
    const height = Math.min(this.view.clientHeight, HEAD + lane * this.store.learners.length);
    const window = { width: this.view.clientWidth, height: Math.max(height, HEAD) };
    const { scrollLeft: left, scrollTop: top } = this.view;
    return new Scene(this.store, { clock, names, lane, unit, chosen, left, top, ...window });
  }

  paint() {
    if (!this.view.clientWidth || this.unit === undefined) return;
    const { scene } = this;
    const context = sized(this.canvas, scene.width, scene.height);
    scene.paint(context);
    if (this.chosen) scene.ring(context, this.chosen);
    this.isCoarse = scene.coarse;
    this.seen = scene.seen;
    this.painted();
  }

  /** What is in sight, as wide as paper is, and whole cycles. */
  onPaper() {
    const { clock, range, first, last } = this.scene;
    const lane = Math.max(this.lane, Math.min(LANE, PAPER.height / Math.max(1, last - first)));
    const [from, to] = clock ? [range[0], Math.min(range[1], this.all)] : [range[0] - 1, range[1]];
    const unit = (PAPER.width - PAPER.names - 8) / (to - from);
    const height = HEAD + lane * (last - first);
    return new Scene(this.store, {
      ...PAPER,
      clock,
      lane,
      unit,
      left: from * unit,
      top: first * lane,
      height,
    });
  }

  /** The turn under the pointer, or null. */
  at(event) {
    const box = this.view.getBoundingClientRect();
    return this.scene.at(event.clientX - box.left, event.clientY - box.top);
  }

  /** Scroll until a turn is in sight. */
  show(place) {
    const { scene } = this;
    const [x, width] = scene.box(place);
    const y = scene.y(place[2]);
    const { clientWidth, clientHeight } = this.view;
    if (x < this.names) this.view.scrollLeft += x - this.names - 10;
    else if (x + width > clientWidth)
      this.view.scrollLeft += x + Math.min(width, clientWidth - this.names) - clientWidth + 10;
    if (y < HEAD) this.view.scrollTop += y - HEAD;
    else if (y + this.lane > clientHeight) this.view.scrollTop += y + this.lane - clientHeight;
    this.#stay();
  }
}
