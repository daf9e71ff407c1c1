// Coded training: who answered, when the gradient became known, how exact it was.

import { Chart, Charts } from "./charts.js";
import { lines } from "./curves.js";
import { el } from "./dom.js";
import { COUNTED, LOST, SITTING, ink, pixel, seconds } from "./format.js";
import { boxes } from "./keys.js";
import { isNeedless } from "./learner.js";
import { Matrix } from "./matrix.js";
import { SITS_OUT, UNDER_WAY, COUNTED as COUNTS, isIdle } from "./store.js";

export class Coded {
  constructor(app) {
    this.app = app;
    this.matrix = new Matrix({ title: "Who answered, by worker and iteration" });
    const known = new Chart({ title: "When the gradient was known", y: "time since the order (s)", low: 0 });
    const error = new Chart({
      title: "Error of the decoded gradient (0: exact)",
      y: "error ‖aB − 1‖ / √K",
      low: 0,
      digits: 4,
    });
    this.charts = new Charts([
      [known, () => this.#known()],
      [error, () => lines(app, "error")],
    ]);
    this.root = el("div", { class: "charts" }, this.matrix.root, this.charts.root);
  }

  draw() {
    const { store } = this.app;
    this.matrix.draw(() => ({
      names: store.learners,
      columns: store.mostCycles,
      keys: this.#keys(),
      cell: (learner, column) => this.#colour(store.turn(0, column + 1, learner)),
      words: (learner, column) => this.#words(store.turn(0, column + 1, learner)),
    }));
    this.charts.draw();
  }

  /** What the colours in the picture mean. */
  #keys() {
    const { turns, outcomes } = this.app.store;
    const seen = new Set([...new Set(turns.outcome)].map((one) => this.#kind(outcomes[one])));
    const kinds = { answered: COUNTED, "not needed any more": SITTING, lost: LOST };
    return boxes(kinds).filter(({ name }) => seen.has(name));
  }

  #kind(outcome) {
    if (isIdle(outcome) || outcome === UNDER_WAY) return null;
    if (outcome === COUNTS) return "answered";
    return isNeedless(outcome) ? "not needed any more" : "lost";
  }

  #colour(row) {
    const { store } = this.app;
    const outcome = row === undefined ? SITS_OUT : store.outcome(row);
    if (isIdle(outcome)) return 0;
    const colours = { [COUNTS]: COUNTED, [UNDER_WAY]: ink("--line") };
    return pixel(colours[outcome] ?? (isNeedless(outcome) ? SITTING : LOST));
  }

  #words(row) {
    const { store } = this.app;
    const took = seconds(store.turns.measured_s[row] ?? store.turns.dropped_s[row]);
    return store.outcome(row) === COUNTS ? `answered after ${took}` : `${store.outcome(row)} (${took})`;
  }

  /** Times of the gradient, and of the last answer that came. */
  #known() {
    const { store } = this.app;
    const named = lines(this.app, "cycle_s").map((line) => ({
      ...line,
      name: "gradient known",
      named: true,
    }));
    const { samples, predicted_s } = store.turns;
    const points = [[], []];
    (store.turnAt[0] ?? []).forEach((cycle, number) => {
      const predicted = Object.values(cycle)
        .filter((row) => samples[row])
        .map((row) => predicted_s[row] ?? 0);
      if (!predicted.some(Boolean)) return;
      points[0].push(number);
      points[1].push(Math.max(...predicted));
    });
    return [
      ...named,
      { name: "predicted for the slowest", colour: "#999999", dash: [2, 3], points, named: true },
    ];
  }
}
