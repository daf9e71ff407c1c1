// Who was given how much, cycle by cycle.

import { el } from "./dom.js";
import { number, pixel, shades } from "./format.js";
import { rampKey } from "./keys.js";
import { Matrix } from "./matrix.js";

export class Allocation {
  constructor(app) {
    this.app = app;
    this.root = el("div", { class: "charts" });
    this.made = [];
  }

  /** One matrix of samples for each task. */
  draw() {
    const { store } = this.app;
    while (this.made.length < store.tasks.length) {
      const name = store.tasks.length > 1 ? ` of ${store.tasks[this.made.length].name}` : "";
      const matrix = new Matrix({ title: `Samples allocated${name}, by learner and cycle` });
      this.made.push(matrix);
      this.root.append(matrix.root);
    }
    this.made.forEach((matrix, task) => matrix.draw(() => allocated(store, task)));
  }
}

function allocated(store, task) {
  const { samples = [], steps, trained } = store.turns;
  const place = (learner, column) => store.turn(task, column + 1, learner);
  let most = 1;
  for (let row = 0; row < samples.length; row++)
    if (store.turns.task[row] === task && samples[row] > most) most = samples[row];
  const colours = shades(33).map(pixel);
  return {
    names: store.learners,
    columns: store.cycle(task),
    keys: [rampKey("samples allocated", "0", number(most))],
    cell: (learner, column) => {
      const row = place(learner, column);
      return row === undefined || !samples[row] ? 0 : colours[Math.round((32 * samples[row]) / most)];
    },
    text: (learner, column) => number(samples[place(learner, column)] ?? null),
    words: (learner, column) => {
      const row = place(learner, column);
      const did = trained[row] == null ? "" : `, trained on ${number(trained[row])}`;
      return `${number(samples[row])} samples × ${number(steps[row])} epochs${did}`;
    },
  };
}
