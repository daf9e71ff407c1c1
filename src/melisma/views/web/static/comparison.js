// Schemes compared: the table, and mean curves with their intervals.

import { Chart } from "./charts.js";
import { metricFacts } from "./curves.js";
import { el } from "./dom.js";
import { COSTS, number, schemeColour } from "./format.js";
import { jobText } from "./job.js";
import { boxes, legend } from "./keys.js";
import { plain } from "./table.js";

export class Comparison {
  constructor(told, theme) {
    this.told = told;
    const top = el(
      "header",
      { class: "top" },
      el("strong", { class: "brand" }, "Melisma"),
      el("span", { class: "link file" }, "report"),
      theme,
    );
    const title = `${told.job}: schemes compared`;
    document.title = title;
    if (told.metric) this.#charts(told.metric);
    this.costs = el("figure", { class: "chart full" });
    const body = el(
      "main",
      { class: "body" },
      el("h1", {}, title),
      el("p", {}, told.caption),
      told.metric ? el("div", { class: "charts" }, this.byCycle.root, this.byTime.root) : null,
      plain(["scheme", ...told.titles], told.rows, "schemes compared"),
      el("p", { class: "dim" }, told.notes),
      told.costs.length ? this.costs : null,
      el("h2", {}, "The job"),
      ...jobText(told.changed, told.config),
    );
    document.body.append(top, body);
  }

  /** Of several tasks there are none: each has its own cycles. */
  #charts(metric) {
    const bound = metric.percent ? [0, 102] : null;
    this.byCycle = new Chart({ ...metricFacts(metric, "cycle"), bound });
    const x = "time on the learners' clock (s)";
    this.byTime = new Chart({ ...metricFacts(metric, "time_s"), x, bound });
  }

  start() {
    this.changed();
  }

  changed() {
    if (this.told.metric) {
      this.byCycle.draw(() => this.told.curves.map((curve) => line(curve, "cycle")));
      this.byTime.draw(() => this.told.curves.map((curve) => line(curve, "time_s")));
    }
    if (this.told.costs.length)
      this.costs.replaceChildren(
        el("figcaption", {}, "Cost per sample collected"),
        legend(boxes(COSTS)),
        ...bars(this.told.costs),
      );
  }
}

/** A scheme's curve, where it is known: a metric need not be finite. */
function line({ scheme, mean, half, ...x }, by) {
  const known = mean.map((_, i) => i).filter((i) => mean[i] != null);
  const points = [known.map((i) => x[by][i]), known.map((i) => mean[i])];
  const bounded = known.length && known.every((i) => half[i] != null);
  const band = bounded ? [-1, 1].map((way) => known.map((i) => mean[i] + way * half[i])) : null;
  return { name: scheme, colour: schemeColour(scheme), points, band, named: true };
}

/** A bar a scheme, of what data cost. */
function bars(costs) {
  const total = (row) => Object.keys(COSTS).reduce((sum, name) => sum + row[name], 0);
  const most = Math.max(...costs.map(total)) || 1;
  return costs.map((row) => {
    const parts = Object.entries(COSTS).map(([name, colour]) => {
      const part = el("i", { title: `${name} ${number(row[name], 3)}` });
      part.style.background = colour;
      part.style.width = `${(80 * row[name]) / most}%`;
      return part;
    });
    return el(
      "div",
      { class: "bar" },
      el("span", {}, row.scheme),
      el("div", {}, ...parts, el("b", {}, number(total(row), 3))),
    );
  });
}
