// The timeline: a lane for each learner, cycle by cycle or by the clock.

import { button, el, say } from "./dom.js";
import { chosen_s, number, onPaper, short, taskColour } from "./format.js";
import { legend } from "./keys.js";
import { Lanes } from "./lanes.js";
import { printed, saver } from "./paper.js";
import { hideTip, showTip } from "./tip.js";
import { MARKS, cellKeys, describe } from "./turns.js";

const TELL_MS = 150;

export class Timeline {
  title = "Timeline";

  constructor(app) {
    this.app = app;
    this.lanes = new Lanes(app, () => this.#tellSoon());
    this.said = el("p", { class: "said", "aria-live": "polite" });
    this.legend = el("div", { class: "legend" });
    this.root = el(
      "section",
      { class: "timeline", "aria-label": this.title },
      this.#tools(),
      this.lanes.view,
      el("div", { class: "row under" }, this.legend, saver(this)),
      this.said,
    );
    this.#listen();
  }

  #tools() {
    this.ways = {
      cycle: button("by cycle", () => this.#way("cycle"), { "aria-pressed": "true" }),
      clock: button("by clock", () => this.#way("clock"), { "aria-pressed": "false" }),
    };
    return el(
      "div",
      { class: "row tools" },
      el("div", { class: "joined" }, this.ways.cycle, this.ways.clock),
      el(
        "div",
        { class: "joined" },
        button("−", () => this.#zoom(1 / 1.5), { "aria-label": "zoom out", title: "zoom out (−)" }),
        button("+", () => this.#zoom(1.5), { "aria-label": "zoom in", title: "zoom in (+)" }),
        button("all", () => this.lanes.fit(), { title: "show all of it (0)" }),
        button("reset", () => this.lanes.reset(), { title: "as it was at first" }),
      ),
    );
  }

  #listen() {
    const { view } = this.lanes;
    view.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    view.addEventListener("pointermove", (event) => this.#hover(event));
    view.addEventListener("pointerleave", hideTip);
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
    this.lanes.reset();
  }

  #zoom(factor, at) {
    this.lanes.zoom(factor, at);
  }

  draw() {
    this.root.hidden = !this.store.mostCycles;
    if (!this.lanes.view.clientWidth) return;
    if (this.drawnFor !== this.store) this.#begin();
    this.lanes.grow();
    this.#tell();
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
    const place = this.lanes.at(event);
    if (place) showTip(event, this.#words(place));
    else hideTip();
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
      0: () => this.lanes.fit(),
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

  /** Once nobody scrolls any more: a legend that is made anew on the way would hold frames up. */
  #tellSoon() {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => this.#tell(), TELL_MS);
  }

  /** Say what the marks in sight mean, if that is not said already. */
  #tell() {
    const keys = this.#keys(this.lanes.isCoarse, this.lanes.seen);
    const shape = JSON.stringify([document.documentElement.dataset.theme, keys]);
    if (this.shape === shape) return;
    this.shape = shape;
    const made = legend(keys);
    this.legend.replaceWith(made);
    this.legend = made;
  }

  /** Keys of the marks that are `seen`; of several tasks, which colour is whose. */
  #keys(coarse, seen) {
    const { tasks, kind } = this.store;
    if (coarse) return cellKeys(seen);
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
        .filter(([name, mark]) => (!several || mark.kind !== "box") && seen.has(name))
        .map(([name, mark]) =>
          kind === "coded" && name === "idle" ? { ...mark, name: "not needed" } : mark,
        ),
      ...(seen.has("known") ? [{ name: "gradient known", kind: "box", colour: "#009E73" }] : []),
      ...(seen.has("due") ? [{ name: `deadline (${deadlines})`, kind: "due" }] : []),
    ];
  }

  /** What is in sight, as SVG. */
  print() {
    return onPaper(() => {
      const scene = this.lanes.onPaper();
      const { width, height } = scene;
      scene.paint(new OffscreenCanvas(1, 1).getContext("2d")); // to know what there is
      const keys = this.#keys(scene.coarse, scene.seen);
      const paint = (paper) => scene.paint(paper);
      return printed({ title: this.title, width, height, keys, paint });
    });
  }
}
