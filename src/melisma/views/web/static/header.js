// The head of the page: which run, how far it is, how well it does.

import { button, el, say } from "./dom.js";
import { bytes, chosen_s, metricText, number, plainNumber, span, taskColour } from "./format.js";
import { columnOf, isAsynchronous } from "./store.js";

/** What a phone shows on demand only. */
const isMinor = (name) => /^(scheme|deadline of|test loss$|time$|bytes |cost of)/.test(name);

export class Header {
  constructor(app) {
    this.app = app;
    this.title = el("h1", {}, "Melisma");
    this.state = el("span", { class: "state" });
    this.tiles = el("dl", { class: "tiles" });
    this.known = new Map();
    this.more = button("all figures", () => this.#unfold(), { class: "more", "aria-expanded": "false" });
    this.bar = el("progress", { "aria-label": "cycles done" });
    this.root = el(
      "section",
      { class: "head", "aria-label": "run" },
      el("div", { class: "row" }, this.title, this.state, this.more),
      this.tiles,
      this.bar,
    );
  }

  /** On a phone there are a few figures first, and all on demand. */
  #unfold() {
    const whole = this.root.classList.toggle("whole");
    this.more.setAttribute("aria-expanded", String(whole));
    say(this.more, whole ? "fewer figures" : "all figures");
  }

  draw() {
    const { store } = this.app;
    const { run } = store;
    say(this.title, run.name ?? run.id);
    const waits = run.state === "running" && store.status?.waiting;
    const state = store.lost ? "out of touch" : waits ? "waiting" : run.state;
    say(this.state, state);
    this.state.className = `state ${state.replaceAll(" ", "-")}`;
    document.title = `${run.name}: ${this.#where()}`;
    this.#show(store.tasks.length > 1 ? this.#several() : this.#single());
    this.bar.max = store.tasks.reduce((sum, task) => sum + (task.cycles ?? 0), 0) || 1;
    this.bar.value = store.tasks.reduce((sum, _, task) => sum + store.done(task), 0);
  }

  #where() {
    const { store } = this.app;
    return store.ended ? store.run.state : `cycle ${this.#cycle(0)}`;
  }

  #cycle(task) {
    const { store } = this.app;
    const now = store.ended ? store.done(task) : store.cycle(task);
    return `${number(now)} of ${number(store.tasks[task]?.cycles ?? store.run.cycles)}`;
  }

  #single() {
    const { store } = this.app;
    const { run } = store;
    const metric = store.metric(0);
    return {
      scheme: run.scheme,
      cycle: this.#cycle(0),
      ...this.#countdown(),
      ...(metric ? { [`test ${metric.name}`]: this.#value(0) } : {}),
      "test loss": plainNumber(store.last(0, "loss")),
      ...this.#rest(),
    };
  }

  /** Of several tasks each has a tile. */
  #several() {
    const { store } = this.app;
    const tasks = store.tasks.map((_, place) => [
      this.#nameOf(place),
      `${this.#cycle(place)}${store.metric(place) ? `, ${this.#value(place)}` : ""}`,
    ]);
    return { scheme: store.run.scheme, ...this.#countdown(), ...Object.fromEntries(tasks), ...this.#rest() };
  }

  /** The name of a task's tile. */
  #nameOf(task) {
    const { store } = this.app;
    const metric = store.metric(task);
    return `${store.tasks[task].name}: cycle${metric ? `, ${metric.name}` : ""}`;
  }

  /** *The* metric of a task, now. */
  #value(task) {
    const { store } = this.app;
    const metric = store.metric(task);
    return metricText(metric, store.last(task, columnOf(metric)));
  }

  /** Time to the deadline that comes next, of the tasks that are in a cycle. */
  #countdown() {
    const { store } = this.app;
    const known_s = [...new Set(store.tasks.map((task) => chosen_s(task.deadline_s)))].join(", ");
    if (isAsynchronous(store.run)) return { "deadline of an order": known_s };
    const known = { "deadline of a cycle": known_s };
    if (store.ended || store.now_s === null) return known;
    const left = store.tasks.map((_, task) => this.#left_s(task)).filter((left_s) => left_s !== null);
    const why = store.run.state === "paused" ? "paused" : store.mostCycles ? "between cycles" : "not begun";
    if (!left.length) return { "to the deadline": why, ...known };
    const next = Math.min(...left);
    return { "to the deadline": next >= 0 ? span(next) : `${span(-next)} past`, ...known };
  }

  #left_s(task) {
    const { store } = this.app;
    const cycle = store.cycle(task);
    const row = store.cycleAt[task]?.[cycle];
    if (!cycle || (row !== undefined && store.cycles.time_s[row] != null)) return null;
    const single = store.tasks.length === 1;
    const began_s = (single ? store.status?.cycle_began_s : null) ?? store.starts[task][cycle];
    const deadline_s = (single ? store.status?.deadline_s : null) ?? store.deadline_s(task, cycle);
    return began_s + deadline_s - store.now_s;
  }

  #rest() {
    const { store } = this.app;
    const { run, status, cost } = store;
    const needed = status?.waiting?.needed;
    const there = status?.learners
      ? Object.values(status.learners).filter((one) => one.connected).length
      : null;
    const time_s =
      store.now_s ?? Math.max(0, ...store.tasks.map((_, task) => store.last(task, "time_s") ?? 0));
    return {
      learners:
        (there === null || store.ended ? "" : `${number(there)} of `) +
        number(Math.max(needed ?? 0, store.everybody.length)),
      time: span(time_s),
      ...(cost === null
        ? {}
        : {
            [run.budget == null ? "cost of a cycle" : "cost of a cycle, budget"]:
              number(cost, 1) + (run.budget == null ? "" : ` of ${number(run.budget)}`),
          }),
      ...(status?.sent_bytes == null
        ? {}
        : { "bytes sent": bytes(status.sent_bytes), "bytes received": bytes(status.received_bytes) }),
    };
  }

  #show(told) {
    for (const [name, value] of Object.entries(told)) {
      let tile = this.known.get(name);
      if (!tile) {
        const shown = el("dd");
        tile = { shown, root: el("div", { class: isMinor(name) ? "minor" : "" }, el("dt", {}, name), shown) };
        this.known.set(name, tile);
      }
      say(tile.shown, String(value));
    }
    const wanted = Object.keys(told).map((name) => this.known.get(name).root);
    const same =
      wanted.length === this.tiles.children.length &&
      wanted.every((tile, i) => tile === this.tiles.children[i]);
    if (!same) this.tiles.replaceChildren(...wanted);
    this.app.store.tasks.forEach((_, place) => {
      const tile = this.known.get(this.#nameOf(place));
      if (tile) tile.root.style.borderLeft = `4px solid ${taskColour(place)}`;
    });
  }
}
