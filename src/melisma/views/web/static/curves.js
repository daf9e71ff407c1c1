// Curves of a run, by cycle and by time, with another run laid over.

import { Chart, Charts } from "./charts.js";
import { el, say } from "./dom.js";
import { chosen_s, number, schemeColour, taskColour } from "./format.js";
import { besideLoss, columnOf, isAsynchronous } from "./store.js";

/** Lines of one figure: one for each task, and those of a second run dashed. */
export function lines(app, figure, by = "cycle", scale = 1, has = () => true) {
  const linesOf = (store, prefix) =>
    store.tasks
      .map((_, task) => task)
      .filter((task) => has(store, task))
      .map((task) => lineOf(store, task, prefix, store.line(task, figure, by, scale)));
  const shown = linesOf(app.store, "");
  if (!app.other) return shown;
  const over = linesOf(app.other, `${app.other.run.id}: `);
  return [...shown, ...over.map((line) => ({ ...line, dash: [6, 4], colour: overColour(line, shown) }))];
}

const OVER = "#CC79A7";

/** A second run of the same scheme would be drawn in the same colour. */
const overColour = (line, shown) => (shown.some((own) => own.colour === line.colour) ? OVER : line.colour);

function lineOf(store, task, prefix, points) {
  const several = store.tasks.length > 1;
  return {
    name: prefix + (several ? store.tasks[task].name : store.run.scheme),
    colour: several ? taskColour(task) : schemeColour(store.run.scheme),
    points,
    named: prefix !== "",
  };
}

const CLOCK = "time on the learners' clock (s)";

const chartOf = (app, title, figure, { by = "cycle", scale = 1, ...facts }) => {
  const chart = new Chart({ title, x: by === "cycle" ? "cycle" : CLOCK, ...facts });
  return [chart, () => lines(app, figure, by, scale)];
};

const percents = { scale: 100, digits: 1 };

const word = (by) => (by === "cycle" ? "cycle" : "time");

/** What a chart of a metric is called, and how its values are printed. */
export const metricFacts = ({ name, percent, more_is_better }, by) => ({
  title: `Test ${name} by ${word(by)}`,
  y: `test ${name}${percent ? " (%)" : ""}${more_is_better ? "" : ", less is better"}`,
  digits: percent ? percents.digits : null,
});

/** A metric, of the tasks that have it. */
export function metric(app, kind, by) {
  const chart = new Chart({ ...metricFacts(kind, by), x: by === "cycle" ? "cycle" : CLOCK });
  const scale = kind.percent ? percents.scale : 1;
  return [chart, () => lines(app, columnOf(kind), by, scale, (store, task) => store.has(task, kind))];
}

export const loss = (app, by) =>
  chartOf(app, `Test loss by ${word(by)}`, "loss", { y: "test loss", digits: null, by });

/** Charts that are made anew once it is known what the metrics are. */
export class MetricCharts extends Charts {
  constructor(app, make) {
    super([]);
    Object.assign(this, { app, make });
  }

  draw() {
    const { store } = this.app;
    const shape = JSON.stringify(store.metrics);
    if (this.shape !== shape) {
      this.shape = shape;
      this.pairs = this.make(store);
      this.root.replaceChildren(...this.pairs.map(([chart]) => chart.root));
    }
    super.draw();
  }
}

/** Several figures of the run in one chart. */
function together(app, title, figures, facts) {
  const chart = new Chart({ title, low: 0, ...facts });
  return [
    chart,
    () =>
      figures.flatMap(([figure, name, dash]) =>
        lines(app, figure, "cycle", facts.scale ?? 1).map((line) => ({
          ...line,
          name: app.store.tasks.length > 1 || line.named ? `${line.name}, ${name}` : name,
          named: true,
          dash: dash ?? line.dash,
        })),
      ),
  ];
}

/** Deadlines that the run chose, and the losses that it expected of them. */
function steered(app) {
  const [deadlines, chosen] = chartOf(app, "Deadline that the run chose", "deadline_s", {
    y: "deadline (s)",
    digits: 2,
    low: 0,
  });
  const [losses, both] = together(
    app,
    "Test loss, and what was expected of the deadline",
    [
      ["loss", "came"],
      ["expected_loss", "expected", [2, 3]],
    ],
    { y: "test loss", digits: 3, low: null },
  );
  return [
    [deadlines, chosen],
    [losses, both],
  ];
}

/** Why the run has the deadline it has, where it chose it. */
export class Steered {
  constructor(app) {
    this.app = app;
    this.why = el("p", { class: "dim" });
    this.charts = new Charts(steered(app));
    this.root = el("div", {});
  }

  draw() {
    const { tasks, cycles } = this.app.store;
    const [task] = tasks;
    const chosen = task?.why || cycles.expected_loss?.some((loss) => loss != null);
    if (!chosen) return this.root.replaceChildren();
    if (!this.root.children.length) this.root.append(this.why, this.charts.root);
    say(this.why, `Deadline ${chosen_s(task.deadline_s)}: ${task.why || "set by hand"}.`);
    this.charts.draw();
  }
}

/** Bytes that came and went since the page is open. */
function moved(app) {
  const chart = new Chart({
    title: "Bytes moved since the page is open",
    x: CLOCK,
    y: "bytes moved (MB)",
    low: 0,
    digits: 1,
  });
  const line = (place, name, colour) => ({
    name,
    colour,
    named: true,
    points: [app.store.moved.map((row) => row[0]), app.store.moved.map((row) => row[place] / 1e6)],
  });
  return [
    chart,
    () =>
      app.store.moved.length > 1
        ? [line(1, "to learners", "#56B4E9"), line(2, "from learners", "#E69F00")]
        : null,
  ];
}

export class Curves {
  constructor(app) {
    this.charts = new MetricCharts(app, ({ metrics, run }) => [
      ...besideLoss(metrics).flatMap((kind) => [metric(app, kind, "cycle"), metric(app, kind, "time_s")]),
      loss(app, "cycle"),
      loss(app, "time_s"),
      together(
        app,
        isAsynchronous(run)
          ? "Staleness: how many versions old updates are"
          : "Staleness: how many epochs learners are apart",
        [
          ["max_staleness", "largest"],
          ["mean_staleness", "mean", [2, 3]],
        ],
        { y: isAsynchronous(run) ? "staleness (versions)" : "staleness (epochs)", digits: 1 },
      ),
      together(
        app,
        "Utilisation, and truancy: how far past the deadline",
        [
          ["utilisation", "utilisation"],
          ["truancy", "truancy", [2, 3]],
        ],
        { ...percents, y: "of the deadline (%)" },
      ),
      chartOf(app, "Samples trained", "samples", { y: "samples trained", digits: 0, low: 0 }),
      chartOf(app, "Updates that count", "counted", { y: "updates", digits: 0, low: 0 }),
      chartOf(app, "Length of a cycle", "cycle_s", { y: "length of a cycle (s)", digits: 2, low: 0 }),
      priced(app),
      moved(app),
    ]);
    this.root = this.charts.root;
  }

  draw() {
    this.charts.draw();
  }
}

/** Cost by cycle, with the budget where there is one. */
function priced(app) {
  const [chart, own] = chartOf(app, "Cost of a cycle", "cost", { y: "cost of a cycle", digits: 1, low: 0 });
  return [
    chart,
    () => {
      const shown = own();
      if (!shown.some((line) => line.points[0].length)) return null;
      const { budget } = app.store.run;
      if (budget == null) return shown;
      const ends = [1, Math.max(2, app.store.mostCycles)];
      const name = `budget of all tasks (${number(budget)})`;
      return [
        ...shown,
        { name, colour: "#D55E00", dash: [2, 3], points: [ends, [budget, budget]], named: true },
      ];
    },
  ];
}
