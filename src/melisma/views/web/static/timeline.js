// The timeline: a lane for each learner, cycle by cycle or by the clock.

import { button, el, say } from "./dom.js";
import { chosen_s, number, onPaper, short, taskColour } from "./format.js";
import { legend } from "./keys.js";
import { Lanes } from "./lanes.js";
import { printed, saver } from "./paper.js";
import { MARKS, cellKeys, describe } from "./turns.js";

export class Timeline {
  title = "Timeline";

  constructor(app) {
    this.app = app;
    this.lanes = new Lanes(app);
    this.said = el("p", { class: "said", "aria-live": "polite" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.root = el("section", { class: "timeline" }, this.#tools(), this.lanes.view, this.said, this.tip);
    this.#listen();
  }

  #tools() {
    this.ways = {
      cycle: button("by cycle", () => this.#way("cycle"), { "aria-pressed": "true" }),
      clock: button("by clock", () => this.#way("clock"), { "aria-pressed": "false" }),
    };
    this.legend = el("div", { class: "legend" });
    return el(
      "div",
      { class: "row tools" },
      el("div", { class: "joined" }, this.ways.cycle, this.ways.clock),
      el(
        "div",
        { class: "joined" },
        button("−", () => this.#zoom(1 / 1.5), { "aria-label": "zoom out", title: "zoom out (−)" }),
        button("+", () => this.#zoom(1.5), { "aria-label": "zoom in", title: "zoom in (+)" }),
        button("all", () => this.#fit(), { title: "show all of it (0)" }),
        button("reset", () => this.#see(() => this.lanes.reset()), { title: "as it was at first" }),
      ),
      saver(this),
      this.legend,
    );
  }

  #listen() {
    const { view } = this.lanes;
    view.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    view.addEventListener("pointermove", (event) => this.#hover(event));
    view.addEventListener("pointerleave", () => (this.tip.hidden = true));
    view.addEventListener("click", (event) => this.#choose(this.lanes.at(event)));
    view.addEventListener("keydown", (event) => this.#key(event));
  }

  get store() {
    return this.app.store;
  }

  #way(way) {
    for (const [name, one] of Object.entries(this.ways))
      one.setAttribute("aria-pressed", String(name === way));
    this.lanes.way = way;
    this.#see(() => this.lanes.reset());
  }

  /** Do something to the lanes, and say what is seen then. */
  #see(change) {
    change();
    this.#tell();
  }

  #zoom(factor, at) {
    this.#see(() => this.lanes.zoom(factor, at));
  }

  #fit() {
    this.#see(() => this.lanes.fit());
  }

  draw() {
    if (!this.lanes.view.clientWidth) return;
    if (this.drawnFor !== this.store) this.#begin();
    this.#see(() => this.lanes.grow());
  }

  /** Another run than before. */
  #begin() {
    this.drawnFor = this.store;
    const several = this.store.tasks.length > 1;
    this.ways.cycle.parentElement.hidden = several;
    this.#way(several ? "clock" : "cycle");
    this.#choose(null);
  }

  /** Bars of those who are at work grow. */
  tick() {
    if (!this.store.ended) this.lanes.paint();
  }

  #words(place) {
    const row = this.store.turn(...place);
    if (row !== undefined) return describe(this.store, row);
    return [`${this.store.learners[place[2]]}, cycle ${number(place[1])}`, "it was not there"];
  }

  #hover(event) {
    const place = event.pointerType === "touch" ? null : this.lanes.at(event);
    this.tip.hidden = place === null;
    if (!place) return;
    const words = this.#words(place);
    this.tip.replaceChildren(
      el("strong", {}, words[0]),
      ...words.slice(1).map((line) => el("div", {}, line)),
    );
    const { width, height } = this.tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 16 + height < window.innerHeight;
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${below ? event.clientY + 16 : event.clientY - height - 10}px`;
  }

  #choose(place) {
    this.lanes.chosen = place;
    say(this.said, place ? this.#words(place).join("; ") : "");
    this.lanes.paint();
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const at = event.clientX - this.lanes.view.getBoundingClientRect().left - this.lanes.names;
    this.#zoom(Math.exp(-event.deltaY / 200), Math.max(0, at));
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const stride = event.shiftKey ? 10 : 1;
    const moves = {
      ArrowRight: () => this.#step(stride, 0),
      ArrowLeft: () => this.#step(-stride, 0),
      ArrowDown: () => this.#step(0, stride),
      ArrowUp: () => this.#step(0, -stride),
      Home: () => this.#step(-Infinity, 0),
      End: () => this.#step(Infinity, 0),
      "+": () => this.#zoom(1.5),
      "=": () => this.#zoom(1.5),
      "-": () => this.#zoom(1 / 1.5),
      0: () => this.#fit(),
      Escape: () => this.#choose(null),
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  /** Choose another cycle or learner; of several tasks, the learner's next turn. */
  #step(cycles, lanes) {
    const [task, cycle, lane] = this.lanes.chosen ?? [0, cycles < 0 ? this.store.mostCycles + 1 : 0, 0];
    const to = Math.max(0, Math.min(this.store.learners.length - 1, lane + lanes));
    let place = [task, Math.max(1, Math.min(this.store.cycle(task), cycle + cycles)), to];
    if (this.store.tasks.length > 1) place = this.#next(task, cycle, lane, to, cycles);
    this.#choose(place);
    this.lanes.show(place);
  }

  #next(task, cycle, lane, to, step) {
    const turns = this.store.tasks.flatMap((_, other) =>
      Array.from({ length: this.store.cycle(other) }, (_, i) => [other, i + 1, to]),
    );
    const time = (place) => this.store.turns.began_s[this.store.turn(...place)];
    const there = turns.filter(
      (place) => time(place) !== undefined && this.store.turns.samples[this.store.turn(...place)],
    );
    there.sort((one, two) => time(one) - time(two));
    if (!there.length) return [task, cycle || 1, to];
    const now = time([task, cycle, lane]) ?? -1;
    const here = there.findLastIndex((place) => time(place) <= now);
    return there[Math.max(0, Math.min(there.length - 1, here + step))];
  }

  /** Say what the marks mean, if that is not said already. */
  #tell() {
    const keys = this.#keys(this.lanes.isCoarse);
    const shape = JSON.stringify([document.documentElement.dataset.theme, keys]);
    if (this.shape === shape) return;
    this.shape = shape;
    const made = legend(keys);
    this.legend.replaceWith(made);
    this.legend = made;
  }

  /** Keys of all marks, or of those that are `seen`; of several tasks, which colour is whose. */
  #keys(coarse, seen = null) {
    const { tasks, kind } = this.store;
    if (coarse) return cellKeys(kind === "coded");
    const several = tasks.length > 1;
    const deadlines = [...new Set(tasks.map((task) => (task.why ? "chosen anew" : chosen_s(task.deadline_s))))].join(", ");
    const owners = tasks.map(({ name }, i) => ({
      name: short(name, 30),
      kind: "box",
      colour: taskColour(i),
    }));
    return [
      ...(several ? owners : []),
      ...Object.entries(MARKS)
        .filter(([name, mark]) => (!several || mark.kind !== "box") && (!seen || seen.has(name)))
        .map(([name, mark]) =>
          kind === "coded" && name === "idle" ? { ...mark, name: "not needed" } : mark,
        ),
      ...(kind === "coded" ? [{ name: "gradient known", kind: "box", colour: "#009E73" }] : []),
      { name: `deadline (${deadlines})`, kind: "due" },
    ];
  }

  /** What is in sight, as SVG. */
  print() {
    return onPaper(() => {
      const scene = this.lanes.onPaper();
      const { width, height } = scene;
      const keys = this.#keys(scene.coarse, scene.marks());
      const paint = (paper) => scene.paint(paper);
      return printed({ title: this.title, width, height, keys, paint });
    });
  }
}
