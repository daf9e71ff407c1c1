// Keep a store up to date while its run goes on, through lost connections.

import { Refused, follow, get } from "./api.js";
import { Store } from "./store.js";

const FIRST_MS = 500;
const MOST_MS = 5_000;

/** Follows one run; `changed()` is called when something came, `said(state, text)` of the line. */
export class Line {
  #stop = new AbortController();

  constructor(id, changed, said) {
    this.id = id;
    this.store = null;
    this.changed = changed;
    this.said = said;
    this.done = this.#run();
  }

  close() {
    this.#stop.abort();
  }

  async #run() {
    let wait_ms = FIRST_MS;
    let tries = 0;
    const stopped = () => this.#stop.signal.aborted;
    while (!stopped()) {
      try {
        await this.#once(() => ((wait_ms = FIRST_MS), (tries = 0)));
        if (this.store.ended || stopped()) break;
      } catch (error) {
        if (stopped()) break;
        if (error instanceof Refused && error.code < 500) {
          this.said("refused", error.message, error);
          return;
        }
      }
      tries++;
      if (this.store) this.store.lost = true;
      this.said("lost", `connection lost, trying again (${tries})`);
      await new Promise((resume) => setTimeout(resume, wait_ms));
      wait_ms = Math.min(2 * wait_ms, MOST_MS);
    }
    if (!stopped()) this.said("ended", this.store.run.state);
  }

  /** Merge what changed; since record 0 means that the run was begun anew. */
  #take(part) {
    const { run, tasks, status, position } = this.store;
    if (part.after !== 0 || position === 0) return this.store.merge(part);
    this.store = new Store({ run, tasks, ...part });
    if (status) this.store.hear(status);
  }

  async #once(connected) {
    if (!this.store) {
      this.store = new Store(await get(`api/runs/${encodeURIComponent(this.id)}`));
      this.changed();
    }
    const tell = (event, data) => {
      this.store.lost = false;
      connected();
      if (event === "rows") this.#take(data);
      else if (event === "status") this.store.hear(data);
      if (!this.store.ended) this.said("live", "live");
      this.changed();
    };
    const { position, epoch } = this.store;
    await follow({ id: this.id, after: position, epoch }, tell, this.#stop.signal);
  }
}
