// What is in sight of the lanes, and how it is painted: on the screen a window onto them, on paper the same.

import { everySo } from "./axes.js";
import { pixels } from "./dom.js";
import { chosen_s, font, ink, number, short, taskColour } from "./format.js";
import { line } from "./keys.js";
import { cellPixel, drawTurn, end_s, noteMarks } from "./turns.js";

export const HEAD = 40; // pixels of the lines with cycles and times
export const LANE = 22; // of a lane
const BARS = 24; // a narrower cycle is drawn as one cell
const NAMED = 11; // a lower lane has no room for a name
const GREEN = "#009E73";

/** Seconds that a cycle's panel shows: to the deadline, unless all are long done by then. */
export function spanOf(store, task) {
  const deadline_s = store.longestDeadline_s(task);
  const longest_s = store.longest[task] ?? 0;
  if (longest_s && longest_s < deadline_s / 3 && store.ended) return 1.08 * longest_s;
  if (longest_s && longest_s < deadline_s / 10) return 1.3 * longest_s;
  return 1.08 * Math.min(Math.max(longest_s, deadline_s), 1.5 * deadline_s);
}

/** Seconds that the clock shows. */
export function until_s(store) {
  const last = store.tasks.map((_, task) => {
    const starts = store.starts[task] ?? [];
    return (starts.at(-1) ?? 0) + (store.ended ? (store.longest[task] ?? 0) : spanOf(store, task));
  });
  return 1.02 * Math.max(0, ...last);
}

export class Scene {
  /**
   * Pixels: `width` and `height` in all, `names` of the learners' names, `lane` of a lane, `unit` of a cycle
   * or, by the `clock`, of a second; `left` and `top` are out of sight.
   */
  constructor(store, facts) {
    Object.assign(this, { store, ...facts });
    this.coarse = !this.clock && (this.unit < BARS || this.lane < 7); // cells in place of bars
    this.first = Math.max(0, Math.floor(this.top / this.lane));
    this.last = Math.min(store.learners.length, Math.ceil((this.top + this.height - HEAD) / this.lane));
    this.seen = new Set(); // names of the marks that were painted
    this.inner = this.unit - Math.min(10, 0.1 * this.unit); // of a cycle, without the gap to the next
  }

  y(lane) {
    return HEAD + lane * this.lane - this.top;
  }

  /** Where a cycle begins, or a second. */
  x(value) {
    return this.names + value * this.unit - this.left;
  }

  /** The first cycle or second that is in sight, and the last. */
  get range() {
    const [from, to] = [this.left / this.unit, (this.left + this.width - this.names) / this.unit];
    if (this.clock) return [from, to];
    return [Math.max(1, Math.floor(from) + 1), Math.min(this.store.mostCycles, Math.ceil(to))];
  }

  paint(context) {
    this.inks = { ink: ink("--ink"), dim: ink("--dim"), line: ink("--line"), page: ink("--card") };
    Object.assign(context, { font: font(), textBaseline: "middle" });
    this.#within(context, 0, () => (this.clock ? this.#ticks(context) : this.#heads(context)));
    this.#within(context, HEAD, () => (this.clock ? this.#byClock(context) : this.#byCycle(context)));
    this.#names(context);
  }

  #within(context, top, paint) {
    context.save();
    context.beginPath();
    context.rect(this.names, top, this.width - this.names, this.height - top);
    context.clip();
    paint();
    context.restore();
  }

  /** Call `see(row, task, cycle, lane)` of every turn in sight. */
  each(see) {
    const { store } = this;
    const [from, to] = this.range;
    store.tasks.forEach((_, task) => {
      // The last first: the marks of a turn stand over the bar of the next.
      for (let cycle = this.clock ? store.cycle(task) : to; cycle >= (this.clock ? 1 : from); cycle--) {
        const start_s = store.starts[task]?.[cycle];
        if (this.clock && (start_s === undefined || start_s > to)) continue;
        const longest_s = Math.max(store.deadline_s(task, cycle), store.longest[task]);
        if (this.clock && start_s + 3 * longest_s < from) break;
        for (let lane = this.first; lane < this.last; lane++) {
          const row = store.turn(task, cycle, lane);
          if (row !== undefined) see(row, task, cycle, lane);
        }
      }
    });
  }

  #byCycle(context) {
    const { store, inner } = this;
    const scale = inner / spanOf(store, 0);
    const [from, to] = this.range;
    if (this.coarse) this.#cells(context, from, to);
    else
      this.each((row, task, cycle, lane) => {
        const x = this.x(cycle - 1);
        const place = { x, y: this.y(lane), height: this.lane, scale, right: x + inner };
        drawTurn(context, store, row, place);
        noteMarks(this.seen, store, row);
      });
    for (let cycle = from; cycle <= to && this.unit >= BARS; cycle++) this.#limits(context, cycle, scale);
  }

  /** Too much for bars: a cell for each turn, the stronger the more of the deadline it used. */
  #cells(context, from, to) {
    const { store, first, last, lane } = this;
    if (to < from || last <= first) return;
    const picture = pixels(to - from + 1, last - first, (row, column) => {
      const cycle = from + column;
      return cellPixel(store, store.turn(0, cycle, first + row), store.deadline_s(0, cycle), this.seen);
    });
    const [width, height] = [picture.width * this.unit, picture.height * lane];
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, this.x(from - 1), this.y(first), width, height);
    if (lane < 9) return;
    context.fillStyle = this.inks.page;
    for (let row = first; row < last; row++)
      context.fillRect(this.names, this.y(row), this.width - this.names, 0.12 * lane);
  }

  /** The deadline; of a coded cycle also when the gradient was known. */
  #limits(context, cycle, scale) {
    const { store } = this;
    const x = this.x(cycle - 1);
    const bottom = Math.min(this.height, this.y(store.learners.length));
    const gap = x - Math.min(5, 0.05 * this.unit);
    line(context, [gap, HEAD, gap, bottom], this.inks.line, [], 1.2);
    const due = x + store.deadline_s(0, cycle) * scale;
    if (due <= x + this.inner) {
      line(context, [due, HEAD, due, bottom], this.inks.ink, [4, 3], 1.2);
      this.seen.add("due");
    }
    const row = store.kind === "coded" ? store.cycleAt[0]?.[cycle] : undefined;
    const known_s = row === undefined ? null : store.cycles.cycle_s[row];
    const known = x + known_s * scale;
    if (known_s == null) return;
    line(context, [known, HEAD, known, bottom], GREEN, [], 1.2);
    this.seen.add("known");
  }

  /** Cycles, and below them how long their panels are. */
  #heads(context) {
    const every = everySo(this.unit, 44);
    const [from, to] = this.range;
    for (let cycle = from; cycle <= to; cycle++) {
      if (cycle % every) continue;
      Object.assign(context, { textAlign: "center", fillStyle: this.inks.dim });
      const text = this.unit > 90 ? `cycle ${number(cycle)}` : number(cycle);
      context.fillText(text, this.x(cycle - 1) + this.inner / 2, 11);
      if (this.unit >= 60 && !this.coarse) this.#seconds(context, cycle);
    }
  }

  /** Time since the order: 0, and the deadline or, where that is far off, another round time. */
  #seconds(context, cycle) {
    const { store, inner } = this;
    const span_s = spanOf(store, 0);
    const deadline_s = store.deadline_s(0, cycle);
    const size = 10 ** Math.floor(Math.log10(span_s));
    const round = [5, 2, 1].map((part) => part * size).find((time_s) => time_s <= span_s);
    const end = deadline_s <= span_s ? deadline_s : round;
    const x = this.x(cycle - 1);
    context.textAlign = "left";
    context.fillText("0", x, 29);
    context.textAlign = end < 0.5 * span_s ? "center" : "right";
    context.fillText(chosen_s(end), x + (end / span_s) * inner + (end < 0.5 * span_s ? 0 : 5), 29);
    line(context, [x + (end / span_s) * inner, 36, x + (end / span_s) * inner, HEAD], this.inks.dim);
  }

  #byClock(context) {
    const several = this.store.tasks.length > 1;
    this.each((row, task, cycle, lane) => {
      if (several && !this.store.turns.samples[row]) return;
      this.#turn(context, row, lane, several ? taskColour(task) : null, this.store.deadline_s(task, cycle));
    });
  }

  #turn(context, row, lane, colour, deadline_s) {
    const x = this.x(this.store.turns.began_s[row]);
    const y = this.y(lane);
    const place = { x, y, height: this.lane, scale: this.unit, right: Infinity, colour };
    drawTurn(context, this.store, row, place);
    noteMarks(this.seen, this.store, row);
    if (this.unit * deadline_s < 24) return;
    this.seen.add("due");
    const due = x + deadline_s * this.unit;
    line(context, [due, y + 1, due, y + this.lane - 1], colour ?? this.inks.ink, [3, 2], 1.2);
  }

  #ticks(context) {
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 21600];
    const every = steps.find((step) => step * this.unit >= 70) ?? 86400;
    const [from_s, to_s] = this.range;
    context.textAlign = "center";
    for (let i = Math.ceil(from_s / every); i * every <= to_s; i++) {
      const x = this.x(i * every);
      line(context, [x, HEAD - 4, x, this.height], this.inks.line, [], 1.2);
      context.fillStyle = this.inks.dim;
      context.fillText(`${number(i * every, every < 1 ? 1 : 0)} s`, x + (i ? 0 : 10), 25);
    }
  }

  /** Learners beside their lanes, and what the times above are. */
  #names(context) {
    const { names, lane } = this;
    context.fillStyle = this.inks.page;
    context.fillRect(0, 0, names, this.height);
    context.textAlign = "right";
    for (let row = this.first; row < this.last && lane >= NAMED; row++) {
      const y = this.y(row) + lane / 2;
      if (y < HEAD) continue;
      context.fillStyle = row === this.chosen?.[2] ? this.inks.ink : this.inks.dim;
      context.fillText(short(this.store.learners[row], names > 100 ? 20 : 12), names - 8, y, names - 12);
    }
    context.fillStyle = this.inks.page;
    context.fillRect(0, 0, names, HEAD);
    context.fillStyle = this.inks.dim;
    const about = this.clock ? "time" : this.coarse || this.unit < 60 ? "cycle" : "time since the order";
    if (names > 100) context.fillText(about, names - 8, this.clock ? 25 : about === "cycle" ? 11 : 29);
  }

  /** Mark a turn. */
  ring(context, place) {
    const [x, width] = this.box(place);
    this.#within(context, 0, () => {
      context.strokeStyle = ink("--focus");
      context.lineWidth = 2;
      context.strokeRect(x - 2, this.y(place[2]) + 1, Math.max(width, 6) + 3, this.lane - 2);
    });
  }

  /** Left and width of a turn: [task, cycle, learner]. */
  box([task, cycle, learner]) {
    if (!this.clock) return [this.x(cycle - 1), 0.92 * this.unit];
    const row = this.store.turn(task, cycle, learner);
    const known = row !== undefined;
    const began_s = known ? this.store.turns.began_s[row] : (this.store.starts[task]?.[cycle] ?? 0);
    const took_s = known ? end_s(this.store, row) : spanOf(this.store, task);
    return [this.x(began_s), took_s * this.unit];
  }

  /** The turn at a place in pixels, or null. */
  at(x, y) {
    const lane = Math.floor((y - HEAD + this.top) / this.lane);
    if (y < HEAD || x < this.names || !(lane in this.store.learners)) return null;
    const value = (x - this.names + this.left) / this.unit;
    if (this.clock) return this.#turnAt(lane, value);
    const cycle = Math.floor(value) + 1;
    return cycle >= 1 && cycle <= this.store.mostCycles ? [0, cycle, lane] : null;
  }

  #turnAt(lane, time_s) {
    const { store } = this;
    for (let task = 0; task < store.tasks.length; task++) {
      for (let cycle = store.cycle(task); cycle > 0; cycle--) {
        const row = store.turn(task, cycle, lane);
        if (row === undefined) continue;
        const began_s = store.turns.began_s[row];
        if (began_s <= time_s && time_s <= began_s + end_s(store, row)) return [task, cycle, lane];
      }
    }
    return null;
  }
}
