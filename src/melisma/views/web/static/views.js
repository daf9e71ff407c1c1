// What there is to look at, by kind of run, in tabs.

import { Allocation } from "./allocation.js";
import { fragment, rewrite } from "./api.js";
import { Coded } from "./coded.js";
import { Curves, MetricCharts, Steered, loss, metric } from "./curves.js";
import { button, el } from "./dom.js";
import { Fog } from "./fog.js";
import { jobText } from "./job.js";
import { Predictions } from "./predictions.js";
import { besideLoss } from "./store.js";
import { Cycles, Incidents, Learners, Tasks } from "./tables.js";
import { Timeline } from "./timeline.js";

/** First sight: what tells most of a kind of run. */
class Overview {
  constructor(app) {
    const { kind } = app.store;
    const by = kind === "tasks" ? "time_s" : "cycle";
    const charts = new MetricCharts(app, ({ firstMetrics }) => [
      ...besideLoss(firstMetrics).map((one) => metric(app, one, by)),
      loss(app, by),
    ]);
    this.parts = {
      tasks: () => [new Timeline(app), new Tasks(app), charts],
      fog: () => [charts, new Fog(app)],
    }[kind]?.() ?? [new Timeline(app), charts, new Steered(app)];
    this.root = el("div", { class: "parts" }, ...this.parts.map((part) => part.root));
  }

  draw() {
    for (const part of this.parts) part.draw();
  }

  tick() {
    for (const part of this.parts) part.tick?.();
  }
}

/** What was run. */
class Job {
  constructor(app) {
    const { changed, config } = app.store.run;
    this.root = el("div", {}, ...jobText(changed, config ?? ""));
  }

  draw() {}
}

const ALWAYS = () => true;

/** [key, title, what it is, of which runs]. */
const VIEWS = [
  ["overview", "Overview", Overview, ALWAYS],
  ["learners", "Learners", Learners, ALWAYS],
  ["curves", "Curves", Curves, ALWAYS],
  ["coded", "Answers", Coded, (store) => store.kind === "coded"],
  ["allocation", "Allocation", Allocation, ALWAYS],
  ["predictions", "Predictions", Predictions, (store) => store.kind !== "fog"],
  ["cycles", "Cycles", Cycles, ALWAYS],
  ["incidents", "Incidents", Incidents, ALWAYS],
  ["job", "Job", Job, ALWAYS],
];

export class Views {
  #made = new Map();

  constructor(app) {
    this.app = app;
    this.shown = VIEWS.filter(([, , , applies]) => applies(app.store));
    this.tabs = this.shown.map(([key, title]) =>
      button(title, () => this.open(key), {
        role: "tab",
        id: `tab-${key}`,
        "aria-controls": "view",
        "aria-selected": "false",
        tabindex: "-1",
      }),
    );
    this.list = el(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "views", onkeydown: (event) => this.#key(event) },
      ...this.tabs,
    );
    this.panel = el("div", { id: "view", role: "tabpanel", tabindex: "-1" });
    this.root = el("div", {}, this.list, this.panel);
    const wanted = fragment().get("view");
    this.open(this.shown.some(([key]) => key === wanted) ? wanted : "overview");
  }

  open(key) {
    this.key = key;
    rewrite({ view: key === "overview" ? null : key });
    this.tabs.forEach((tab, i) => {
      const chosen = this.shown[i][0] === key;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) requestAnimationFrame(() => tab.scrollIntoView({ block: "nearest", inline: "nearest" }));
    });
    if (!this.#made.has(key))
      this.#made.set(key, new (this.shown.find(([name]) => name === key)[2])(this.app));
    this.panel.setAttribute("aria-labelledby", `tab-${key}`);
    this.panel.replaceChildren(this.#made.get(key).root);
    if (this.root.isConnected) this.draw();
  }

  draw() {
    this.#made.get(this.key).draw();
  }

  /** Time went on, and nothing else. */
  tick() {
    this.#made.get(this.key).tick?.();
  }

  /** Arrow keys move between tabs. */
  #key(event) {
    const here = this.tabs.indexOf(document.activeElement);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: this.tabs.length - 1 }[event.key];
    if (to === undefined || here < 0) return;
    event.preventDefault();
    const tab = this.tabs[(to + this.tabs.length) % this.tabs.length];
    tab.focus();
    tab.click();
  }
}
