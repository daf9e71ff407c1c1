// Predicted against measured: each learner in each cycle, and the error by cycle.

import { Axes } from "./axes.js";
import { Chart } from "./charts.js";
import { el, say } from "./dom.js";
import { TRAINING, chosen_s, font, ink, mean, number, percent, schemeColour } from "./format.js";
import { boxes, line } from "./keys.js";
import { Picture } from "./picture.js";

const SIZE = 360;
const POINTS = 20_000; // of more, every so many

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

/** A point for each learner in each cycle, and the deadlines. */
class Scatter extends Picture {
  constructor() {
    super({ title: "Each learner in each cycle" });
  }

  keys({ store, rows }) {
    const stopped = rows.some((row) => store.turns.halted[row]);
    return stopped ? boxes({ finished: TRAINING, halted: ink("--ink") }) : [];
  }

  height(width) {
    return Math.min(width, SIZE);
  }

  sheet() {
    return { width: SIZE + 20, height: SIZE };
  }

  paint(context, width, height, { store, rows }) {
    const { predicted_s, measured_s, halted } = store.turns;
    const last = rows.reduce((found, row) => Math.max(found, predicted_s[row], measured_s[row]), 0);
    // Of deadlines that are far off a picture would show nothing else.
    const deadlines = [...new Set(store.tasks.map((task) => task.deadline_s))].filter(
      (one) => one !== null && one < 3 * last,
    );
    const range = [0, 1.05 * Math.max(last, ...deadlines)];
    const labels = ["predicted (s)", "measured (s)"];
    const axes = new Axes({ width: Math.min(width, SIZE + 20), height, x: range, y: range, labels });
    axes.draw(context);
    line(context, [...axes.at(0, 0), ...axes.at(range[1], range[1])], ink("--dim"));
    for (const one of deadlines) due(context, axes, range[1], one);
    const size = rows.length > 2000 ? 2 : 4;
    context.globalAlpha = Math.min(0.7, Math.max(0.06, 400 / Math.min(rows.length, POINTS)));
    const every = Math.ceil(rows.length / POINTS);
    for (let i = 0; i < rows.length; i += every) {
      const [x, y] = axes.at(predicted_s[rows[i]], measured_s[rows[i]]);
      context.fillStyle = halted[rows[i]] ? ink("--ink") : TRAINING;
      context.fillRect(x - size / 2, y - size / 2, size, size);
    }
    context.globalAlpha = 1;
  }
}

function due(context, axes, most, deadline_s) {
  line(context, [...axes.at(0, deadline_s), ...axes.at(most, deadline_s)], ink("--ink"), [4, 3], 1.2);
  Object.assign(context, { font: font(), textAlign: "left", fillStyle: ink("--ink") });
  const [x, y] = axes.at(0, deadline_s);
  context.fillText(`deadline ${chosen_s(deadline_s)}`, x + 4, y - 8);
}
