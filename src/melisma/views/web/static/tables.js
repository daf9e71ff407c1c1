// Learners, tasks, cycles and incidents as tables.

import { button, el } from "./dom.js";
import { bytes, chosen_s, joules, mean, metricText, number, percent, plainNumber, seconds, span } from "./format.js";
import { isNeedless, placeOf, tallies } from "./learner.js";
import { COUNTED, besideLoss, columnOf } from "./store.js";
import { Table, plain } from "./table.js";

const column = (title, name, text, facts = {}) => ({
  title,
  of: (row) => row[name],
  text: (row) => text(row[name]),
  ...facts,
});

/** Columns, with their ranks where there is no room for all: the first of these titles matter most. */
const ranked = (columns, titles) =>
  columns.map((one) => {
    const place = titles.findIndex((title) => one.title.startsWith(title));
    return { ...one, rank: 1 + (place < 0 ? titles.length : place) };
  });

export class Learners {
  constructor(app) {
    this.app = app;
    this.root = el("div");
  }

  draw() {
    const rows = tallies(this.app.store);
    const shape = JSON.stringify([
      this.app.steering?.may ?? false,
      this.app.store.tasks.length > 1,
      rows.some((row) => row.distance !== null),
      !this.app.store.ended || rows.some((row) => row.seen_s !== null),
      this.app.store.run.late_at_most ?? null,
      rows.some((row) => row.reserve !== null),
      this.app.store.options.some(Boolean),
      rows.some((row) => row.predicted_j !== null),
      rows.some((row) => row.spent_j !== null),
    ]);
    if (this.shape !== shape) this.#make((this.shape = shape));
    this.table.draw(rows);
  }

  #make(shape) {
    const [may, several, checked, seen, promised, reserved, chooses, draws, spends] = JSON.parse(shape);
    const { app } = this;
    const columns = [
      { title: "learner", name: true, of: (row) => row.name },
      {
        title: "state",
        of: (row) => row.state,
        why: (row) => row.why,
        look: (row) => `is ${row.state.replaceAll(" ", "-")}`,
      },
      ...(several
        ? [{ title: "task", of: (row) => (row.task === null ? null : app.store.tasks[row.task].name) }]
        : []),
      column("allocated", "given", (value) => number(value), { hint: "samples in its last cycle" }),
      column("trained", "did", (value) => number(value), { hint: "samples in its last cycle" }),
      column("download", "downloaded_s", seconds, { hint: "until it had model and data, in its last cycle" }),
      column("training", "trained_s", seconds, { hint: "until it stopped training, in its last cycle" }),
      column("update", "last_s", seconds, { hint: "until its update was here, in its last cycle" }),
      column("mean", "mean_s", seconds, { hint: "until its update was here, over all cycles" }),
      column("off", "off", (value) => percent(value), {
        hint: "how far predictions were off, over all cycles",
      }),
      column("truancy", "truancy", (value) => percent(value), {
        hint: "how far past the deadline, over all cycles",
      }),
      column("cycles", "cycles", (value) => number(value), { hint: "in which it had work" }),
      ...(promised === null
        ? []
        : [
            column(`late (≤ ${percent(promised)})`, "late", (value) => percent(value), {
              hint: "share of its cycles in which it was halted or not there in time, and what was promised",
            }),
          ]),
      ...(reserved
        ? [
            column("reserve", "reserve", (value) => percent(value), {
              hint: "share of its time that is left free to keep the promise",
            }),
          ]
        : []),
      ...(chooses
        ? [
            column("option", "option", (value) => value ?? "–", { hint: "by what it takes part, in its last cycle" }),
            column("saved", "saved", bytes, { hint: "what travelled less by its options, over all cycles" }),
          ]
        : []),
      ...(draws
        ? [column("energy planned", "predicted_j", joules, { hint: "by what it draws, over all cycles" })]
        : []),
      ...(spends ? [column("spent", "spent_j", joules, { hint: "as measured, over all cycles" })] : []),
      column("halted", "halted", (value) => number(value)),
      column("dropped", "dropped", (value) => number(value), { hint: "updates that do not count" }),
      ...(checked
        ? [
            column("distance", "distance", (value) => number(value, 4), {
              hint: "of checked work from the same work done again, the largest",
            }),
          ]
        : []),
      ...(seen
        ? [
            column("last seen", "seen_s", (value) =>
              value === null ? "–" : value < 1.5 ? "now" : `${span(value)} ago`,
            ),
          ]
        : []),
      ...(may
        ? [
            {
              title: "expel",
              of: () => 0,
              node: ({ name }) =>
                button("Expel …", () => app.steering.expel(name), { class: "small", "aria-label": `Expel ${name} …` }),
            },
          ]
        : []),
    ];
    const first = ["state", "task", "trained", "update", "late", "last seen", "allocated", "dropped", "option"];
    this.table = new Table(ranked(columns, first), (row) => row.name, { label: "learners", filter: true });
    this.root.replaceChildren(this.table.root);
  }
}

export class Tasks {
  constructor(app) {
    this.app = app;
    this.root = el("figure", { class: "chart full" });
  }

  /** Where all tasks have one metric, its name stands once, at the top. */
  #make(shape) {
    this.shape = shape;
    const { store } = this.app;
    const [one, ...others] = store.firstMetrics;
    const text = ({ metric, value }) =>
      metric ? `${others.length ? `${metric.name} ` : ""}${metricText(metric, value)}` : "–";
    const columns = [
      { title: "task", name: true, of: (row) => row.name },
      column("cycles", "done", (value) => number(value)),
      column("of", "cycles", (value) => number(value)),
      { title: one && !others.length ? one.name : "metric", of: (row) => row.value, text },
      column("loss", "loss", plainNumber),
      column("deadline", "deadline_s", chosen_s),
      column("cycle, mean", "cycle_s", seconds),
      column("learners now", "now", (value) => number(value)),
      column("cost of a cycle", "cost", (value) => number(value, 1)),
      { title: "serving now", of: (row) => row.serving, look: () => "wrap" },
    ];
    const first = [columns[3].title, "cycles", "learners now", "loss", "deadline", "cost", "serving"];
    this.table = new Table(ranked(columns, first), (row) => row.name, { label: "tasks" });
    this.root.replaceChildren(
      el("figcaption", {}, "Tasks, and who serves them"),
      this.table.root,
      ...(store.service ? served(store.service) : []),
    );
  }

  draw() {
    const { store } = this.app;
    const shape = JSON.stringify(store.firstMetrics);
    if (this.shape !== shape) this.#make(shape);
    this.table.draw(store.tasks.map((task, place) => this.#row(task, place)));
  }

  #row(task, place) {
    const { store } = this.app;
    const cycle = store.turnAt[place]?.at(-1) ?? [];
    const serving = store.learners.filter((_, learner) => store.turns.samples[cycle[learner]]);
    const rows = store.rowsOf(place);
    const metric = store.metric(place);
    const lengths = rows.map((row) => store.cycles.cycle_s[row]).filter((value) => value != null);
    const refused =
      store.incidents.what?.findIndex(
        (what, i) =>
          what === "refused" && store.incidents.task[i] === place && store.incidents.learner[i] == null,
      ) ?? -1;
    return {
      ...task,
      done: store.done(place),
      metric,
      value: metric && store.last(place, columnOf(metric)),
      loss: store.last(place, "loss"),
      cycle_s: mean(lengths),
      now: serving.length,
      cost: store.last(place, "cost"),
      serving: refused >= 0 ? `refused: ${store.incidents.why[refused]}` : serving.join(", ") || "nobody",
    };
  }
}

/** How well tasks were served, which a report knows. */
function served({ titles, rows }) {
  const told = "Means over the cycles of a task; halted learners count until the deadline.";
  return [
    el("figcaption", {}, "How well they were served"),
    plain(["task", ...titles], rows, "How well they were served"),
    el("p", { class: "dim" }, told),
  ];
}

/** One row for each cycle of each task, the last first. */
export class Cycles {
  constructor(app) {
    this.app = app;
    this.root = el("div");
  }

  #make(shape) {
    this.shape = shape;
    const columns = [
      column("cycle", "cycle", (value) => number(value)),
      ...(this.app.store.tasks.length > 1 ? [column("task", "task", String)] : []),
      column("time", "time_s", seconds),
      ...besideLoss(this.app.store.metrics).map((metric) =>
        column(metric.name, columnOf(metric), (value) => metricText(metric, value, 2), {
          hint: metric.more_is_better ? null : "less is better",
        }),
      ),
      column("loss", "loss", plainNumber),
      column("learners", "learners", (value) => number(value)),
      column("counted", "counted", (value) => number(value)),
      column("carried", "carried", (value) => number(value), { hint: "updates of earlier cycles that came" }),
      column("halted", "halted", (value) => number(value)),
      column("lost", "lost", (value) => number(value)),
      column("samples", "samples", (value) => number(value)),
      column("length", "cycle_s", seconds),
      column("staleness", "max_staleness", (value) => number(value)),
      column("utilisation", "utilisation", (value) => percent(value)),
      column("off", "off", (value) => percent(value), { hint: "how far predictions were off" }),
      column("cost", "cost", (value) => number(value, 1)),
    ];
    const metrics = besideLoss(this.app.store.metrics).map(({ name }) => name);
    const first = ["cycle", "task", ...metrics, "loss", "counted", "lost", "time", "length"];
    const key = (row) => `${row.task} ${row.cycle}`;
    this.table = new Table(ranked(columns, first), key, { label: "cycles", most: 200 });
    this.root.replaceChildren(this.table.root);
  }

  draw() {
    const { store } = this.app;
    const shape = JSON.stringify(store.metrics);
    if (this.shape !== shape) this.#make(shape);
    const rows = store.tasks.flatMap((task, place) =>
      Array.from({ length: store.cycle(place) }, (_, i) => this.#row(task, place, i + 1)),
    );
    rows.sort((one, two) => two.cycle - one.cycle);
    this.table.draw(rows);
  }

  #row(task, place, cycle) {
    const { store } = this.app;
    const { samples, halted, dropped_s, predicted_s, measured_s } = store.turns;
    const turns = Object.values(store.turnAt[place][cycle] ?? []).filter((row) => samples[row]);
    const lost = turns.filter((row) => dropped_s[row] != null && !isNeedless(store.outcome(row)));
    const compared = turns.filter((row) => predicted_s[row] != null && measured_s[row]);
    const at = store.cycleAt[place]?.[cycle];
    const known = Object.fromEntries(
      Object.entries(store.cycles).map(([name, values]) => [name, at === undefined ? null : values[at]]),
    );
    return {
      ...known,
      ...{ cycle, task: task.name, learners: turns.length, lost: lost.length },
      counted: known.counted ?? turns.filter((row) => store.outcome(row) === COUNTED).length,
      carried: known.carried || null,
      halted: turns.filter((row) => halted[row]).length,
      off: mean(compared.map((row) => Math.abs(predicted_s[row] / measured_s[row] - 1))),
    };
  }
}

export class Incidents {
  constructor(app) {
    this.app = app;
    const columns = [
      column("time", "time_s", seconds),
      column("cycle", "cycle", (value) => number(value)),
      { title: "learner", name: true, of: (row) => row.learner },
      { title: "what", of: (row) => row.what, look: (row) => `is ${row.what}` },
      { title: "why", of: (row) => row.why, look: () => "wrap" },
    ];
    this.table = new Table(ranked(columns, ["what", "why", "cycle"]), (row) => row.i, {
      label: "incidents",
      filter: true,
      words: true,
      most: 200,
    });
    this.none = el("p", { class: "dim" }, "None.");
    this.root = el("div", {}, this.none, this.table.root);
  }

  draw() {
    const { store } = this.app;
    const { time_s, cycle, learner, what, why } = store.incidents;
    const rows = time_s.map((_, i) => ({
      i,
      time_s: time_s[i],
      cycle: cycle[i],
      learner: this.#name(learner[i]),
      what: what[i],
      why: why[i] ?? "",
    }));
    this.none.hidden = rows.length > 0;
    this.table.root.hidden = rows.length === 0;
    this.table.draw(rows.reverse());
  }

  #name(learner) {
    return learner == null
      ? ""
      : (this.app.store.learners[placeOf(this.app.store, learner)] ?? String(learner));
  }
}
