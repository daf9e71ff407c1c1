// Start: a live page asks the server, a report has its documents within itself.

import { Refused, adopt, fragment, get, keep, rewrite, setToken } from "./api.js";
import { Comparison } from "./comparison.js";
import { button, el, say } from "./dom.js";
import { Header } from "./header.js";
import { Line } from "./live.js";
import { Steering } from "./steering.js";
import { Store } from "./store.js";
import { Views } from "./views.js";
import { Waiting } from "./waiting.js";

const TICK_MS = 250;
const RUNS_MS = 15_000;

class App {
  constructor(documents) {
    this.documents = documents; // of a report; null on the live page
    this.store = null;
    this.other = null; // a second run, laid over
    this.steering = new Steering(this);
    this.runs = el("select", { "aria-label": "run", onchange: () => this.choose(this.runs.value) });
    this.over = el("select", {
      "aria-label": "run to lay over",
      onchange: () => this.layOver(this.over.value),
    });
    this.link = el("span", { class: "link", role: "status" });
    const theme = button("◐", () => turn(), { "aria-label": "light or dark", title: "light or dark" });
    this.choosers = el(
      "span",
      { class: "row choosers" },
      el("label", {}, "run ", this.runs),
      el("label", {}, "over it ", this.over),
    );
    this.top = el(
      "header",
      { class: "top" },
      el("strong", { class: "brand" }, "Melisma"),
      this.choosers,
      this.link,
      theme,
    );
    this.body = el("main", { class: "body" });
    document.body.append(this.top, this.body);
  }

  /** Show a run's store. */
  open(store) {
    this.store = store;
    this.header = new Header(this);
    this.waiting = new Waiting(this);
    this.views = new Views(this);
    this.body.replaceChildren(this.header.root, this.steering.root, this.waiting.root, this.views.root);
    this.seen = null;
    this.changed();
  }

  /** Something came: draw it with the next frame. */
  changed() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => ((this.due = false), this.draw()));
  }

  draw() {
    if (!this.store) return;
    this.header.draw();
    this.steering.draw();
    this.waiting.draw();
    const seen = [this.store.version, this.other?.run.id, document.documentElement.dataset.theme].join();
    if (seen === this.seen) this.views.tick();
    else this.views.draw();
    this.seen = seen;
  }

  says(state, text) {
    this.link.className = `link ${state}`;
    say(this.link, text);
  }

  /** Fill the choosers with [id, text]. */
  offer(runs, chosen) {
    const options = () => runs.map(([id, text]) => el("option", { value: id }, text));
    const over = this.over.value;
    this.runs.replaceChildren(...options());
    this.over.replaceChildren(el("option", { value: "" }, "none"), ...options());
    this.runs.value = chosen;
    this.over.value = over;
    this.choosers.hidden = runs.length < 2;
  }
}

/** A report: everything is here. */
class Report extends App {
  start() {
    this.stores = this.documents.map((one) => new Store(one));
    this.offer(
      this.stores.map((store, i) => [String(i), store.run.name]),
      "0",
    );
    this.says("file", "report");
    this.choose("0");
  }

  choose(place) {
    this.open(this.stores[Number(place)]);
  }

  layOver(place) {
    this.other = place === "" ? null : this.stores[Number(place)];
    this.changed();
  }
}

/** The live page. */
class Live extends App {
  async start() {
    adopt();
    setInterval(() => !this.store?.ended && this.changed(), TICK_MS);
    const inTouch = () => this.line && this.store && !this.store.ended && !this.store.lost;
    setInterval(() => inTouch() && this.#list().catch(() => {}), RUNS_MS);
    window.addEventListener("hashchange", () => (adopt(), this.choose(fragment().get("run"))));
    await this.choose(fragment().get("run"));
  }

  /** Follow a run: the one that is named, or the one that is under way, or the last. */
  async choose(id) {
    this.line?.close();
    const turn = (this.turn = (this.turn ?? 0) + 1);
    while (turn === this.turn) {
      try {
        const told = await this.#list();
        const wanted = told.runs.some((run) => run.id === id) ? id : (told.live ?? told.runs[0]?.id);
        if (wanted) return this.#follow(wanted, told);
        this.says("lost", "there is no run yet");
      } catch (error) {
        if (error instanceof Refused && error.needsToken) return this.#ask(error);
        this.says("lost", "no connection, trying again");
      }
      await new Promise((resume) => setTimeout(resume, 2000));
    }
  }

  async #list() {
    const told = await get("api/runs");
    const text = (run) => `${run.id}${run.id === told.live ? " (live)" : ""}`;
    this.offer(
      told.runs.map((run) => [run.id, text(run)]),
      this.line?.id,
    );
    return told;
  }

  #follow(id, told) {
    rewrite({ run: id === told.live ? null : id });
    const line = new Line(
      id,
      () => this.#came(line),
      (state, text, error) => this.#said(line, state, text, error),
    );
    this.line = line;
    this.runs.value = id;
    this.says("file", "reading the run");
  }

  #came(line) {
    if (line !== this.line) return;
    if (this.store === line.store) this.changed();
    else this.open(line.store);
  }

  #said(line, state, text, error) {
    if (line !== this.line) return;
    if (error?.needsToken) return this.#ask(error);
    this.says(state, text);
    this.changed();
  }

  async layOver(id) {
    try {
      this.other = id === "" ? null : new Store(await get(`api/runs/${encodeURIComponent(id)}`));
    } catch (error) {
      this.says("lost", error.message);
    }
    this.changed();
  }

  /** Ask for a token; nothing is shown without one. */
  #ask(error) {
    this.line?.close();
    this.line = this.store = null;
    this.offer([], "");
    this.says("refused", "no access");
    const input = el("input", {
      type: "password",
      autocomplete: "off",
      "aria-label": "token",
      autofocus: true,
    });
    const send = (event) => {
      event.preventDefault();
      setToken(input.value.trim());
      this.choose(fragment().get("run"));
    };
    const form = el(
      "form",
      { class: "token", onsubmit: send },
      el("h1", {}, "A token is needed"),
      el("p", {}, error.message),
      el("div", { class: "row" }, input, el("button", {}, "Look")),
      el("p", { class: "dim" }, "The orchestrator prints a link with one when it starts."),
    );
    this.body.replaceChildren(form);
    input.focus();
  }
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Light or dark: as chosen here, or as the system is. */
function shade() {
  document.documentElement.dataset.theme =
    keep("localStorage", "melisma-theme") ?? (dark.matches ? "dark" : "light");
  app?.changed();
}

function turn() {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  keep("localStorage", "melisma-theme", other);
  document.documentElement.dataset.theme = other;
  app.changed();
}

let app = null;
shade();
const held = document.getElementById("documents");
const documents = held ? JSON.parse(held.textContent) : null;
if (documents?.[0]?.comparison)
  app = new Comparison(
    documents[0].comparison,
    button("◐", () => turn(), { "aria-label": "light or dark" }),
  );
else app = documents ? new Report(documents) : new Live(null);
dark.addEventListener("change", shade);
app.start();
