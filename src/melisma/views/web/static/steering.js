// Pause, resume, stop, change the deadline, expel: for those who may.

import { control } from "./api.js";
import { button, confirmed, el, say } from "./dom.js";
import { seconds } from "./format.js";

export class Steering {
  constructor(app) {
    this.app = app;
    this.pause = button("Pause", () => this.send({ action: "pause" }), { title: "after this cycle" });
    this.resume = button("Resume", () => this.send({ action: "resume" }));
    this.stop = button("Stop …", () => this.#stop(), { class: "grave" });
    this.input = el("input", { type: "number", min: "0", step: "any", "aria-label": "deadline in seconds" });
    this.form = el(
      "form",
      { class: "row", onsubmit: (event) => (event.preventDefault(), this.#deadline()) },
      el("label", {}, "deadline ", this.input, " s "),
      el("button", {}, "Set for the next cycle"),
    );
    this.told = el("span", { class: "dim", role: "status" });
    this.root = el(
      "div",
      { class: "row steering", hidden: true },
      this.pause,
      this.resume,
      this.stop,
      this.form,
      this.told,
    );
  }

  get may() {
    const { store } = this.app;
    return Boolean(store?.status?.may_control) && !store.ended && !store.lost;
  }

  draw() {
    const { run } = this.app.store;
    this.root.hidden = !this.may;
    this.pause.hidden = run.state !== "running";
    this.resume.hidden = run.state !== "paused";
    this.form.hidden = this.app.store.kind === "tasks" || this.app.store.kind === "fog";
    this.stop.disabled = run.state === "stopping";
    this.input.placeholder = String(this.app.store.status?.deadline_s ?? run.deadline_s ?? "");
  }

  async send(action) {
    try {
      await control(action);
      say(
        this.told,
        `asked: ${action.action} ${action.learner ?? (action.deadline_s ? seconds(action.deadline_s) : "")}`,
      );
    } catch (error) {
      say(this.told, `${action.action}: ${error.message}`);
    }
  }

  async #stop() {
    const asks = "Stop the run? What was trained is kept, and `melisma resume` goes on with it.";
    if (await confirmed(asks, "Stop the run")) await this.send({ action: "stop" });
  }

  async #deadline() {
    const deadline_s = Number(this.input.value);
    if (!(deadline_s > 0)) return say(this.told, "give a deadline of more than 0 s");
    await this.send({ action: "deadline", deadline_s });
    this.input.value = "";
  }

  async expel(learner) {
    if (await confirmed(`Send ${learner} away for good?`, "Expel it"))
      await this.send({ action: "expel", learner });
  }
}
