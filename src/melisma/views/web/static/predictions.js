// Predicted against measured: each learner in each cycle, and the error by cycle.

import { Chart } from "./charts.js";
import { el, sized } from "./dom.js";
import { TRAINING, ink, mean, number, percent, schemeColour } from "./format.js";

const SIZE = 340;
const EDGE = 44;
const POINTS = 20_000; // of more, every so many

export class Predictions {
  constructor(app) {
    this.app = app;
    this.note = el("p", { class: "dim" });
    this.canvas = el("canvas", { role: "img", "aria-label": "Predicted against measured times" });
    this.scatter = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, "Each learner in each cycle"),
      this.canvas,
    );
    this.chart = new Chart({ title: "Mean absolute error by cycle", y: "%", digits: 1, low: 0 });
    this.root = el("div", { class: "charts" }, this.note, this.scatter, this.chart.root);
  }

  draw() {
    const { store } = this.app;
    const { predicted_s, measured_s, halted, samples } = store.turns;
    const rows = [];
    for (let row = 0; row < store.turns.task.length; row++) {
      if (predicted_s[row] != null && measured_s[row] && samples[row]) rows.push(row);
    }
    this.scatter.hidden = this.chart.root.hidden = !rows.length;
    if (!rows.length)
      return void (this.note.textContent =
        "Nothing to compare: no update has come back, or what learners predict is their own.");
    const off = mean(rows.map((row) => Math.abs(predicted_s[row] / measured_s[row] - 1)));
    const stopped = rows.filter((row) => halted[row]).length;
    this.note.textContent =
      `Predictions were off by ${percent(off)} of the measured time in the mean, over ${number(rows.length)} updates. ` +
      "On the line a prediction came true; above it the learner was slower." +
      (stopped ? ` ${number(stopped)} halted: they were off by more than it says.` : "");
    this.#points(rows);
    this.chart.draw([{ name: "off", colour: schemeColour(store.run.scheme), points: this.#byCycle(rows) }]);
  }

  #byCycle(rows) {
    const { cycle, predicted_s, measured_s } = this.app.store.turns;
    const groups = new Map();
    for (const row of rows) {
      const group = groups.get(cycle[row]) ?? [];
      group.push(100 * Math.abs(predicted_s[row] / measured_s[row] - 1));
      groups.set(cycle[row], group);
    }
    const cycles = [...groups.keys()].sort((a, b) => a - b);
    return [cycles, cycles.map((one) => mean(groups.get(one)))];
  }

  #points(rows) {
    const { predicted_s, measured_s, halted } = this.app.store.turns;
    const context = sized(this.canvas, SIZE, SIZE);
    const most = 1.05 * rows.reduce((found, row) => Math.max(found, predicted_s[row], measured_s[row]), 0);
    const scale = (SIZE - EDGE - 8) / most;
    const at = (x, y) => [EDGE + x * scale, SIZE - EDGE - y * scale];
    context.strokeStyle = ink("--dim");
    context.strokeRect(EDGE, 8, SIZE - EDGE - 8, SIZE - EDGE - 8);
    context.beginPath();
    context.moveTo(...at(0, 0));
    context.lineTo(...at(most, most));
    context.stroke();
    const size = rows.length > 2000 ? 2 : 4;
    context.globalAlpha = Math.min(0.7, Math.max(0.06, 400 / Math.min(rows.length, POINTS)));
    const every = Math.ceil(rows.length / POINTS);
    for (let i = 0; i < rows.length; i += every) {
      const row = rows[i];
      const [x, y] = at(predicted_s[row], measured_s[row]);
      context.fillStyle = halted[row] ? ink("--ink") : TRAINING;
      context.fillRect(x - size / 2, y - size / 2, size, size);
    }
    context.globalAlpha = 1;
    this.#labels(context, most, at);
  }

  #labels(context, most, at) {
    context.fillStyle = ink("--dim");
    context.font = "12px system-ui, sans-serif";
    const step = [1, 2, 5, 10]
      .map((part) => part * 10 ** Math.floor(Math.log10(most) - 0.5))
      .find((part) => most / part <= 5);
    const digits = step < 1 ? Math.ceil(-Math.log10(step)) : 0;
    for (let value = 0; value <= most; value += step) {
      context.textAlign = "center";
      context.fillText(number(value, digits), at(value, 0)[0], SIZE - EDGE + 16);
      context.textAlign = "right";
      context.fillText(number(value, digits), EDGE - 6, at(0, value)[1] + 4);
    }
    context.textAlign = "center";
    context.fillText("predicted (s)", SIZE / 2 + EDGE / 2, SIZE - 6);
    context.save();
    context.translate(11, SIZE / 2 - EDGE / 2);
    context.rotate(-Math.PI / 2);
    context.fillText("measured (s)", 0, 0);
    context.restore();
  }
}
