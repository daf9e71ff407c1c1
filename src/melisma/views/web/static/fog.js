// A fog's data: who sent to whom, what became of samples, what that cost.

import { el } from "./dom.js";
import { Graph, crowd } from "./flows.js";
import { COSTS, FATES, number, percent } from "./format.js";
import { Matrix } from "./matrix.js";
import { Stack } from "./stack.js";
import { Table } from "./table.js";

const DISCS = 30; // more devices are a matrix

export class Fog {
  constructor(app) {
    this.app = app;
    this.facts = el("p", { class: "dim" });
    this.graph = new Graph();
    this.matrix = new Matrix({
      title: "Who sent to whom: from row to column, by rank of what they trained on",
      across: "to rank",
    });
    this.fates = new Stack({
      title: "What became of the samples collected, by slot",
      x: "slot",
      y: "samples collected",
      colours: FATES,
    });
    this.costs = new Stack({
      title: "Cost per sample collected, by cycle",
      x: "cycle",
      y: "cost per sample collected",
      colours: COSTS,
      digits: 3,
    });
    this.table = new Table(columns(app), (row) => row.learner, { label: "devices", filter: true });
    this.root = el(
      "div",
      { class: "charts" },
      this.facts,
      this.graph.root,
      this.matrix.root,
      this.fates.root,
      this.costs.root,
      el("figure", { class: "chart full" }, el("figcaption", {}, "Devices, over all slots"), this.table.root),
    );
  }

  draw() {
    const { store } = this.app;
    if (!store.fog) return;
    const { slots, devices } = store.fog;
    this.#totals(slots);
    this.#flows(store);
    const { kept, sent, discarded } = slots;
    this.fates.draw(() => ({ numbers: slots.slot ?? [], layers: { kept, sent, discarded } }));
    const costs = costsByCycle(store);
    this.costs.root.hidden = !Object.values(costs.layers).flat().some(Boolean); // fog:central has none
    this.costs.draw(() => costs);
    this.table.draw((devices.learner ?? []).map((learner, i) => ({ learner, i })));
  }

  #totals(slots) {
    const sum = (name) => (slots[name] ?? []).reduce((total, value) => total + (value ?? 0), 0);
    const collected = sum("collected");
    const share = (name) => (collected ? percent(sum(name) / collected) : "–");
    const cost = sum("process") + sum("transfer") + sum("error");
    const unit = cost && collected ? `, cost per sample ${number(cost / collected, 3)}` : "";
    this.facts.textContent = `${number(collected)} samples collected: ${share("trained")} trained on, ${share("sent")} sent on, ${share("discarded")} discarded${unit}.`;
  }

  #flows(store) {
    const many = (store.fog.devices.learner?.length ?? 0) > DISCS;
    this.graph.root.hidden = many;
    this.matrix.root.hidden = !many;
    if (!many) return this.graph.draw(store);
    this.matrix.note.textContent = crowd(store).note;
    this.matrix.draw(() => crowd(store));
  }
}

/** Costs of all slots of a cycle, for each sample that was collected in them. */
function costsByCycle({ fog: { slots } }) {
  const sums = new Map();
  slots.cycle?.forEach((cycle, i) => {
    const one = sums.get(cycle) ?? { collected: 0, process: 0, transfer: 0, error: 0 };
    for (const name in one) one[name] += slots[name][i] ?? 0;
    sums.set(cycle, one);
  });
  const numbers = [...sums.keys()].sort((a, b) => a - b);
  const part = (name) => numbers.map((cycle) => sums.get(cycle)[name] / (sums.get(cycle).collected || 1));
  return { numbers, layers: { process: part("process"), transfer: part("transfer"), error: part("error") } };
}

/** The devices' table. */
function columns(app) {
  const of = (name) => (row) => app.store.fog.devices[name]?.[row.i];
  const amount = (title, name, digits = 0) => ({
    title,
    rank: 1 + ["trained", "collected", "sent", "arrived", "discarded", "cost"].indexOf(name),
    of: of(name),
    text: (row) => number(of(name)(row), digits),
  });
  return [
    { title: "device", name: true, of: (row) => app.store.learners[row.learner] },
    amount("collected", "collected"),
    amount("trained", "trained"),
    amount("sent", "sent"),
    amount("arrived", "arrived"),
    amount("discarded", "discarded"),
    amount("cost", "cost", 2),
  ];
}
