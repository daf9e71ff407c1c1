// Predicted against measured: each learner in each cycle, and the error by cycle.

import { Axes } from "./axes.js";
import { Chart } from "./charts.js";
import { el, say } from "./dom.js";
import {
  chosen_s,
  font,
  ink,
  learnerColour,
  mean,
  number,
  percent,
  schemeColour,
  seconds,
  short,
} from "./format.js";
import { dot, line, ring } from "./keys.js";
import { Picture } from "./picture.js";
import { hideTip, showTip } from "./tip.js";

const SIZE = 360;
const POINTS = 20_000; // of more, every so many
const NAMED = 16; // learners in the legend; of more, who points at a dot is told whose it is
const NEAR = 14; // pixels from a dot

export class Predictions {
  constructor(app) {
    this.app = app;
    this.note = el("p", { class: "dim" });
    this.scatter = new Scatter();
    this.chart = new Chart({ title: "Mean absolute error by cycle", y: "off (%)", digits: 1, low: 0 });
    this.root = el("div", { class: "charts" }, this.note, this.scatter.root, this.chart.root);
  }

  draw() {
    const { store } = this.app;
    const { predicted_s, measured_s, halted } = store.turns;
    const rows = compared(store);
    this.scatter.root.hidden = this.chart.root.hidden = !rows.length;
    if (!rows.length)
      return say(
        this.note,
        "Nothing to compare: no update has come back, or what learners predict is their own." + kept(store),
      );
    const off = mean(rows.map((row) => Math.abs(predicted_s[row] / measured_s[row] - 1)));
    const stopped = rows.filter((row) => halted[row]).length;
    say(
      this.note,
      `Predictions were off by ${percent(off)} of the measured time in the mean, over ${number(rows.length)} updates. ` +
        "On the line a prediction came true; above it the learner was slower." +
        (stopped ? ` ${number(stopped)} halted: they were off by more than it says.` : "") +
        kept(store),
    );
    this.scatter.draw(() => ({ store, rows }));
    const points = byCycle(store, rows);
    this.chart.draw(() => [{ name: "off", colour: schemeColour(store.run.scheme), points }]);
  }
}

/** What was promised of lateness, what came of it, and what it cost. */
function kept({ run, turns: { samples, late, predicted_s, planned_s } }) {
  if (run.late_at_most == null) return "";
  const busy = Array.from(samples.keys()).filter((row) => samples[row]);
  if (!busy.length) return "";
  const share = mean(busy.map((row) => (late[row] ? 1 : 0)));
  const free = busy
    .filter((row) => planned_s[row] && predicted_s[row] != null)
    .map((row) => 1 - predicted_s[row] / planned_s[row]);
  return (
    ` Late in ${percent(share)} of all cycles of learners; at most ${percent(run.late_at_most)} were promised` +
    (free.length ? `, for which ${percent(mean(free))} of the time was left free.` : ".")
  );
}

/** Rows of turns in which a prediction can be compared with what came. */
function compared({ turns: { task, predicted_s, measured_s, samples } }) {
  const rows = [];
  for (let row = 0; row < task.length; row++) {
    if (predicted_s[row] != null && measured_s[row] && samples[row]) rows.push(row);
  }
  return rows;
}

function byCycle({ turns: { cycle, predicted_s, measured_s } }, rows) {
  const groups = new Map();
  for (const row of rows) {
    const group = groups.get(cycle[row]) ?? [];
    group.push(100 * Math.abs(predicted_s[row] / measured_s[row] - 1));
    groups.set(cycle[row], group);
  }
  const cycles = [...groups.keys()].sort((a, b) => a - b);
  return [cycles, cycles.map((one) => mean(groups.get(one)))];
}

/** A point for each learner in each cycle, in the learner's colour, and the deadlines. */
class Scatter extends Picture {
  constructor() {
    super({ title: "Each learner in each cycle", help: ". Arrow keys go through cycles and learners." });
    this.hidden = new Set(); // names of learners
    this.at = null; // a row that is looked at
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => (hideTip(), this.#look(null)));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  draw(source) {
    super.draw(() => {
      const { store, rows } = source();
      const { learner } = store.turns;
      const places = [...new Set(rows.map((row) => learner[row]))].sort((one, two) => one - two);
      const colours = new Map(places.map((place, i) => [place, learnerColour(i, places.length)]));
      const shown = rows.filter((row) => !this.hidden.has(store.learners[learner[row]]));
      return { store, rows, shown, colours };
    });
  }

  keys({ store, rows, colours }) {
    const own = [...colours].map(([place, colour]) => {
      const name = store.learners[place];
      return { name: short(name), whole: name, kind: "point", colour, off: this.hidden.has(name) };
    });
    const stopped = rows.some((row) => store.turns.halted[row]);
    return [
      ...(own.length <= NAMED ? own : []),
      ...(stopped ? [{ name: "halted", kind: "ring", colour: ink("--ink"), fixed: true }] : []),
    ];
  }

  /** Show a learner's points, or hide them. */
  choose({ whole }) {
    if (!this.hidden.delete(whole)) this.hidden.add(whole);
    super.draw(this.source);
  }

  height(width) {
    return Math.min(width, SIZE);
  }

  sheet() {
    return { width: SIZE + 20, height: SIZE };
  }

  paint(context, width, height, { store, rows, shown, colours }) {
    const { predicted_s, measured_s, halted, learner } = store.turns;
    const [first, last] = rows.reduce(
      ([low, high], row) => [
        Math.min(low, predicted_s[row], measured_s[row]),
        Math.max(high, predicted_s[row], measured_s[row]),
      ],
      [Infinity, 0],
    );
    // Of deadlines that are far off a picture would show nothing else.
    const deadlines = [...new Set(store.tasks.map((task) => task.deadline_s))].filter(
      (one) => one !== null && one < 3 * last,
    );
    const most = Math.max(last, ...deadlines);
    const range = first > most / 2 ? [first - 0.1 * (most - first), most + 0.1 * (most - first)] : [0, 1.05 * most];
    const labels = ["predicted (s)", "measured (s)"];
    this.axes = new Axes({ width: Math.min(width, SIZE + 20), height, x: range, y: range, labels });
    this.axes.draw(context);
    line(context, [...this.axes.at(range[0], range[0]), ...this.axes.at(range[1], range[1])], ink("--dim"));
    for (const one of deadlines) due(context, this.axes, range, one);
    const size = shown.length > 2000 ? 2 : 4;
    context.globalAlpha = Math.min(0.8, Math.max(0.1, 600 / Math.min(shown.length, POINTS)));
    const every = Math.ceil(shown.length / POINTS);
    for (let i = 0; i < shown.length; i += every) {
      const row = shown[i];
      const [x, y] = this.axes.at(predicted_s[row], measured_s[row]);
      const colour = colours.get(learner[row]);
      if (halted[row]) ring(context, x, y, size - 0.5, colour);
      else if (size > 2) dot(context, x, y, 2.8, colour);
      else ((context.fillStyle = colour), context.fillRect(x - 1, y - 1, 2, 2));
    }
    context.globalAlpha = 1;
  }

  overlay(context, { store: { turns } }) {
    if (this.at === null) return;
    const spot = this.axes.at(turns.predicted_s[this.at], turns.measured_s[this.at]);
    ring(context, ...spot, 6, ink("--ink"));
  }

  #point(event) {
    if (!this.axes) return;
    const box = this.canvas.getBoundingClientRect();
    const row = this.#nearest(event.clientX - box.left, event.clientY - box.top);
    if (row === null) hideTip();
    this.#look(row);
    if (row !== null) showTip(event, this.#words(row));
  }

  /** The point that is nearest to a place, if one is near. */
  #nearest(x, y) {
    const { store, shown } = this.data;
    const { predicted_s, measured_s } = store.turns;
    let [best, least] = [null, NEAR ** 2];
    for (const row of shown) {
      const [px, py] = this.axes.at(predicted_s[row], measured_s[row]);
      const far = (px - x) ** 2 + (py - y) ** 2;
      if (far < least) [best, least] = [row, far];
    }
    return best;
  }

  #words(row) {
    const { learners, turns } = this.data.store;
    return [
      `${learners[turns.learner[row]]}, cycle ${number(turns.cycle[row])}`,
      `predicted ${seconds(turns.predicted_s[row])}`,
      `measured ${seconds(turns.measured_s[row])}${turns.halted[row] ? " (halted)" : ""}`,
    ];
  }

  #look(row) {
    if (row === this.at) return;
    this.at = row;
    say(this.said, row === null ? "" : this.#words(row).join(", "));
    this.show();
  }

  /** Left and right: the learner's other cycles; up and down: other learners. */
  #key(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { shown, store } = this.data;
    if (!move || !shown.length) return;
    event.preventDefault();
    const { learner, cycle } = store.turns;
    if (this.at === null || !shown.includes(this.at)) return this.#look(shown[0]);
    const sideways = event.key === "ArrowRight" || event.key === "ArrowLeft";
    const [along, across] = sideways ? [cycle, learner] : [learner, cycle];
    const next = shown
      .filter((row) => across[row] === across[this.at] && move * (along[row] - along[this.at]) > 0)
      .sort((one, two) => move * (along[one] - along[two]))[0];
    if (next !== undefined) this.#look(next);
  }
}

function due(context, axes, [from, to], deadline_s) {
  line(context, [...axes.at(from, deadline_s), ...axes.at(to, deadline_s)], ink("--ink"), [4, 3], 1.2);
  Object.assign(context, { font: font(), textAlign: "left", fillStyle: ink("--ink") });
  const [x, y] = axes.at(from, deadline_s);
  context.fillText(`deadline ${chosen_s(deadline_s)}`, x + 4, y - 8);
}
