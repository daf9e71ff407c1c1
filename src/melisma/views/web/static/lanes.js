// The lanes themselves: where things are, and the canvas on which they are drawn.
// A canvas as large as the window onto it is drawn anew whenever something moves.

import { el, pixels, sized } from "./dom.js";
import { ink, number, short, taskColour } from "./format.js";
import { cellPixel, drawTurn, end_s } from "./marks.js";

const LANE = 22; // pixels of a lane
const HEAD = 26; // of the line with the cycles' numbers
const BARS = 14; // a narrower cycle is drawn as one cell
const MOST = 900; // pixels of a cycle

/** A place is [task, cycle, learner]. */
export class Lanes {
  constructor(app) {
    this.app = app;
    this.way = "cycle"; // or "clock"
    this.chosen = null; // a place
    this.isCoarse = false; // whether there are cells in place of bars
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.space = el("div", { class: "space" }, this.canvas);
    const help = "Timeline. Arrow keys move through cycles and learners, plus and minus zoom, 0 shows all.";
    this.view = el(
      "div",
      { class: "lanes", tabindex: "0", role: "application", "aria-label": help },
      this.space,
    );
    this.view.addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon()).observe(this.view);
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

  /** Widths as at first: about six cycles, or two of the longest. */
  reset() {
    this.lane = LANE;
    this.width = Math.max(60, Math.min(240, this.room / Math.min(6, Math.max(1, this.cycles))));
    const longest_s = Math.max(...this.store.tasks.map((task) => task.deadline_s), 1e-3);
    this.perSecond = this.room / Math.max(Math.min(this.until_s, 6 * longest_s), 1e-3);
    this.spread();
    if (!this.store.ended) this.view.scrollLeft = this.space.clientWidth;
    this.paint();
  }

  /** Zoom so that everything is in sight. */
  fit() {
    const height = this.view.clientHeight - HEAD;
    this.lane = Math.max(2, Math.min(LANE, height / Math.max(1, this.store.learners.length)));
    this.width = Math.min(MOST, this.room / Math.max(1, this.cycles));
    this.perSecond = this.room / Math.max(this.until_s, 1e-3);
    this.spread();
    this.paint();
  }

  /** Zoom by a factor; what is at `at` pixels from the lanes' left stays there. */
  zoom(factor, at = this.room / 2) {
    const before = this.unit;
    const place = (this.view.scrollLeft + at) / before;
    this.unit = Math.min(this.most, Math.max(this.least, before * factor));
    this.spread();
    this.view.scrollLeft = place * this.unit - at;
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

  get least() {
    return Math.min(this.unit, this.room / Math.max(this.clock ? this.until_s : this.cycles, 1e-3));
  }

  get most() {
    return this.clock ? (MOST * 2) / Math.max(this.spanOf(0), 1e-3) : MOST;
  }

  get cycles() {
    return this.store.mostCycles;
  }

  /** Seconds that the clock shows. */
  get until_s() {
    const last = this.store.tasks.map((_, task) => {
      const starts = this.store.starts[task] ?? [];
      return (starts.at(-1) ?? 0) + (this.store.ended ? (this.store.longest[task] ?? 0) : this.spanOf(task));
    });
    return 1.02 * Math.max(0, ...last);
  }

  /** Seconds that a cycle's panel shows: to the deadline, unless all are long done by then. */
  spanOf(task) {
    const deadline_s = this.store.tasks[task]?.deadline_s ?? this.store.run.deadline_s;
    const longest_s = this.store.longest[task] ?? 0;
    if (longest_s && longest_s < deadline_s / 3 && this.store.ended) return 1.08 * longest_s;
    if (longest_s && longest_s < deadline_s / 10) return 1.3 * longest_s;
    return 1.08 * Math.min(Math.max(longest_s, deadline_s), 1.5 * deadline_s);
  }

  spread() {
    const across = this.clock ? this.until_s * this.perSecond : this.cycles * this.width;
    const width = `${Math.ceil(this.names + across)}px`;
    const height = `${Math.ceil(HEAD + this.lane * this.store.learners.length)}px`;
    if (this.space.style.width !== width) this.space.style.width = width;
    if (this.space.style.height !== height) this.space.style.height = height;
  }

  /** Make room for what came; who looks at the end goes on looking at the end. */
  grow() {
    const { scrollLeft, scrollWidth, clientWidth } = this.view;
    const atEnd = scrollLeft + clientWidth >= scrollWidth - 8;
    this.spread();
    if (atEnd && !this.store.ended) this.view.scrollLeft = this.view.scrollWidth;
    this.paint();
  }

  /** The window onto the lanes. */
  paint() {
    const width = this.view.clientWidth;
    const height = Math.min(this.view.clientHeight, HEAD + this.lane * this.store.learners.length);
    if (!width || this.unit === undefined) return;
    const context = sized(this.canvas, width, Math.max(height, HEAD));
    this.inks = { ink: ink("--ink"), dim: ink("--dim"), line: ink("--line"), page: ink("--card") };
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const first = Math.max(0, Math.floor(this.view.scrollTop / this.lane));
    const last = Math.min(this.store.learners.length, Math.ceil((this.view.scrollTop + height) / this.lane));
    context.save();
    context.beginPath();
    context.rect(this.names, 0, width - this.names, height);
    context.clip();
    if (this.clock) this.#byClock(context, first, last, width, height);
    else this.#byCycle(context, first, last, width, height);
    context.restore();
    this.#names(context, first, last, height);
  }

  #y(lane) {
    return HEAD + lane * this.lane - this.view.scrollTop;
  }

  #byCycle(context, first, last, width, height) {
    const { store } = this;
    const from = Math.max(1, Math.floor(this.view.scrollLeft / this.width) + 1);
    const to = Math.min(this.cycles, Math.ceil((this.view.scrollLeft + width - this.names) / this.width));
    const inner = this.width - Math.min(10, 0.1 * this.width);
    const scale = inner / this.spanOf(0);
    context.save();
    context.beginPath();
    context.rect(this.names, HEAD, width, height);
    context.clip();
    const coarse = this.width < BARS || this.lane < 7;
    this.isCoarse = coarse;
    if (coarse) this.#cells(context, from, to, first, last);
    for (let cycle = from; cycle <= to && this.width >= BARS; cycle++) {
      const x = this.names + (cycle - 1) * this.width - this.view.scrollLeft;
      for (let lane = first; lane < last && !coarse; lane++) {
        const row = store.turn(0, cycle, lane);
        if (row === undefined) continue;
        drawTurn(context, store, row, { x, y: this.#y(lane), height: this.lane, scale, right: x + inner });
      }
      this.#limits(context, cycle, x, scale, inner, height);
    }
    context.restore();
    this.#numbers(context, from, to, inner);
    this.#ring(context);
  }

  /** Too much for bars: a cell for each turn, the stronger the more of the deadline it used. */
  #cells(context, from, to, first, last) {
    if (to < from || last <= first) return;
    const { store } = this;
    const picture = pixels(to - from + 1, last - first, (lane, column) => {
      const cycle = from + column;
      return cellPixel(store, store.turn(0, cycle, first + lane), store.deadline_s(0, cycle));
    });
    const x = this.names + (from - 1) * this.width - this.view.scrollLeft;
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, x, this.#y(first), picture.width * this.width, picture.height * this.lane);
    if (this.lane < 9) return;
    context.fillStyle = this.inks.page;
    for (let lane = first; lane < last; lane++)
      context.fillRect(this.names, this.#y(lane), this.room, 0.12 * this.lane);
  }

  /** The deadline; of a coded cycle also when the gradient was known. */
  #limits(context, cycle, x, scale, inner, height) {
    const { store } = this;
    const bottom = Math.min(height, this.#y(store.learners.length));
    this.#line(context, x - Math.min(5, 0.05 * this.width), HEAD, bottom, this.inks.line, []);
    const deadline = store.deadline_s(0, cycle) * scale;
    if (deadline <= inner) this.#line(context, x + deadline, HEAD, bottom, this.inks.ink, [4, 3]);
    const row = store.kind === "coded" ? store.cycleAt[0]?.[cycle] : undefined;
    const known_s = row === undefined ? null : store.cycles.cycle_s[row];
    if (known_s != null) this.#line(context, x + known_s * scale, HEAD, bottom, "#009E73", []);
  }

  #line(context, x, top, bottom, colour, dash) {
    context.strokeStyle = colour;
    context.lineWidth = 1.2;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, bottom);
    context.stroke();
    context.setLineDash([]);
  }

  #numbers(context, from, to, inner) {
    context.textAlign = "center";
    context.fillStyle = this.inks.dim;
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * this.width >= 44) ?? 1000;
    for (let cycle = from; cycle <= to; cycle++) {
      if (cycle % every && every > 1) continue;
      const x = this.names + (cycle - 1) * this.width - this.view.scrollLeft + inner / 2;
      context.fillText(this.width > 90 ? `cycle ${number(cycle)}` : number(cycle), x, HEAD / 2);
    }
  }

  #byClock(context, first, last, width, height) {
    const { store } = this;
    const several = store.tasks.length > 1;
    const from_s = this.view.scrollLeft / this.perSecond;
    const to_s = (this.view.scrollLeft + width - this.names) / this.perSecond;
    this.isCoarse = false;
    this.#ticks(context, from_s, to_s, height);
    context.save();
    context.beginPath();
    context.rect(this.names, HEAD, width, height);
    context.clip();
    store.tasks.forEach((_, task) => {
      // The last first: the marks of a turn stand over the bar of the next.
      for (let cycle = store.cycle(task); cycle > 0; cycle--) {
        const start_s = store.starts[task][cycle];
        const deadline_s = store.deadline_s(task, cycle);
        if (start_s === undefined || start_s > to_s) continue;
        if (start_s + 3 * Math.max(deadline_s, store.longest[task]) < from_s) break;
        for (let lane = first; lane < last; lane++) {
          const row = store.turn(task, cycle, lane);
          if (row === undefined || !(store.turns.samples[row] || !several)) continue;
          this.#turn(context, row, lane, several ? taskColour(task) : null, deadline_s);
        }
      }
    });
    context.restore();
    this.#ring(context);
  }

  #turn(context, row, lane, colour, deadline_s) {
    const x = this.names + this.store.turns.began_s[row] * this.perSecond - this.view.scrollLeft;
    const y = this.#y(lane);
    drawTurn(context, this.store, row, {
      x,
      y,
      height: this.lane,
      scale: this.perSecond,
      right: Infinity,
      colour,
    });
    if (this.perSecond * deadline_s < 24) return;
    const due = x + deadline_s * this.perSecond;
    this.#line(context, due, y + 1, y + this.lane - 1, colour ?? this.inks.ink, [3, 2]);
  }

  #ticks(context, from_s, to_s, height) {
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 21600];
    const every = steps.find((step) => step * this.perSecond >= 70) ?? 86400;
    context.textAlign = "center";
    for (let i = Math.ceil(from_s / every); i * every <= to_s; i++) {
      const x = this.names + i * every * this.perSecond - this.view.scrollLeft;
      this.#line(context, x, HEAD - 4, height, this.inks.line, []);
      context.fillStyle = this.inks.dim;
      context.fillText(`${number(i * every, every < 1 ? 1 : 0)} s`, x + (i ? 0 : 10), HEAD / 2 - 1);
    }
  }

  #names(context, first, last, height) {
    context.fillStyle = this.inks.page;
    context.fillRect(0, 0, this.names, height);
    context.textAlign = "right";
    if (this.lane >= 11) {
      for (let lane = first; lane < last; lane++) {
        const y = this.#y(lane) + this.lane / 2;
        if (y < HEAD) continue;
        context.fillStyle = lane === this.chosen?.[2] ? this.inks.ink : this.inks.dim;
        context.fillText(
          short(this.store.learners[lane], this.names > 100 ? 20 : 12),
          this.names - 8,
          y,
          this.names - 12,
        );
      }
    }
    context.fillStyle = this.inks.page;
    context.fillRect(0, 0, this.names, HEAD);
  }

  /** Mark what was chosen. */
  #ring(context) {
    if (!this.chosen) return;
    const [x, width] = this.#box(this.chosen);
    context.strokeStyle = ink("--focus");
    context.lineWidth = 2;
    context.strokeRect(x - 2, this.#y(this.chosen[2]) + 1, Math.max(width, 6) + 3, this.lane - 2);
  }

  /** Left and width of a turn, in pixels of the window. */
  #box([task, cycle, learner]) {
    if (!this.clock) return [this.names + (cycle - 1) * this.width - this.view.scrollLeft, 0.92 * this.width];
    const row = this.store.turn(task, cycle, learner);
    const began_s =
      row === undefined ? (this.store.starts[task]?.[cycle] ?? 0) : this.store.turns.began_s[row];
    const took_s = row === undefined ? this.spanOf(task) : end_s(this.store, row);
    return [this.names + began_s * this.perSecond - this.view.scrollLeft, took_s * this.perSecond];
  }

  /** Which turn is under the pointer: [task, cycle, learner], or null. */
  at(event) {
    const box = this.view.getBoundingClientRect();
    const x = event.clientX - box.left - this.names + this.view.scrollLeft;
    const y = event.clientY - box.top;
    const lane = Math.floor((y - HEAD + this.view.scrollTop) / this.lane);
    if (y < HEAD || event.clientX - box.left < this.names || !(lane in this.store.learners)) return null;
    if (!this.clock) {
      const cycle = Math.floor(x / this.width) + 1;
      return cycle >= 1 && cycle <= this.cycles ? [0, cycle, lane] : null;
    }
    return this.#turnAt(lane, x / this.perSecond);
  }

  #turnAt(lane, time_s) {
    for (let task = 0; task < this.store.tasks.length; task++) {
      for (let cycle = this.store.cycle(task); cycle > 0; cycle--) {
        const row = this.store.turn(task, cycle, lane);
        if (row === undefined) continue;
        const began_s = this.store.turns.began_s[row];
        if (began_s <= time_s && time_s <= began_s + end_s(this.store, row)) return [task, cycle, lane];
      }
    }
    return null;
  }

  /** Scroll until a turn is in sight. */
  show(place) {
    const [x, width] = this.#box(place);
    const y = this.#y(place[2]);
    const { clientWidth, clientHeight } = this.view;
    if (x < this.names) this.view.scrollLeft += x - this.names - 10;
    else if (x + width > clientWidth)
      this.view.scrollLeft += x + Math.min(width, clientWidth - this.names) - clientWidth + 10;
    if (y < HEAD) this.view.scrollTop += y - HEAD;
    else if (y + this.lane > clientHeight) this.view.scrollTop += y + this.lane - clientHeight;
  }
}
