// Before a run begins: who is there, who is missing, and how others join.

import { get } from "./api.js";
import { button, el, say, svg } from "./dom.js";
import { number, span } from "./format.js";

const MOST = 60; // names in the list
const QUIET = 4; // light modules around a QR code

/** What a learner's stage is called. */
const STAGES = {
  preparing: "prepares: it fetches model and data",
  queued: "waits to benchmark itself",
  benchmarking: "benchmarks itself",
  ready: "ready",
  refused: "does not take part",
  missing: "not there yet",
};

const ORDER = ["ready", "benchmarking", "queued", "preparing", "missing", "refused"];

export class Waiting {
  constructor(app) {
    this.app = app;
    this.said = el("span", { role: "status" });
    this.list = el("ul", { class: "stages" });
    this.invitation = el("div", { class: "invitation" });
    this.root = el(
      "section",
      { class: "gathering chart", "aria-label": "who is there" },
      el("h2", {}, this.said),
      this.list,
      this.invitation,
    );
    this.root.hidden = true;
  }

  draw() {
    const { store } = this.app;
    const waiting = (!store.ended && store.status?.waiting) || null;
    this.root.hidden = !waiting;
    if (!waiting) return this.#forget();
    const rows = lines(waiting);
    const ready = rows.filter(({ stage }) => stage === "ready").length;
    const missing = waiting.needed - Object.keys(waiting.learners).length;
    say(this.said, headline(ready, waiting.needed, missing));
    this.#show(rows);
    if (store.status.may_control && waiting.invites) this.#invite();
  }

  #show(rows) {
    while (this.list.children.length > Math.min(rows.length, MOST)) this.list.lastChild.remove();
    rows.slice(0, MOST).forEach((row, i) => {
      const item = this.list.children[i] ?? this.list.appendChild(entry());
      item.className = `is ${row.stage}`;
      say(item.children[0], row.name);
      say(item.children[1], words(row));
    });
    this.list.hidden = !rows.length;
  }

  /** Ask once how others join, and show it. */
  async #invite() {
    if (this.asked) return;
    this.asked = true;
    const told = await get("api/invitation").catch(() => null);
    if (told && !this.root.hidden) this.invitation.replaceChildren(...invitation(told));
  }

  /** A token is not left in a page that does not show it. */
  #forget() {
    if (this.asked) this.invitation.replaceChildren();
    this.asked = false;
  }
}

const entry = () => el("li", {}, el("strong"), " ", el("span"));

/** Who is there and who is missing, those who are furthest first. */
function lines({ learners, missing }) {
  const rows = [
    ...Object.entries(learners).map(([name, one]) => ({ name, ...one })),
    ...missing.map((name) => ({ name, stage: "missing" })),
  ];
  const rank = ({ stage }) => ORDER.indexOf(stage);
  return rows.sort((one, two) => rank(one) - rank(two) || one.name.localeCompare(two.name, "en", { numeric: true }));
}

function headline(ready, needed, missing) {
  const far = `${number(ready)} of ${number(needed)} learners ready`;
  if (missing > 0) return `${far}: waiting for ${number(missing)} more to join`;
  return ready < needed ? `${far}: the others prepare` : `${far}: the run begins`;
}

function words({ stage, for_s, left_s, why }) {
  const text = STAGES[stage] ?? stage;
  if (stage === "refused") return `${text}: ${why}`;
  if (stage === "benchmarking" && left_s) return `${text}: about ${span(left_s)} more`;
  return stage === "benchmarking" || stage === "preparing" ? `${text} for ${span(for_s)} so far` : text;
}

function invitation({ command, link, why, code, local }) {
  const text = el("code", { tabindex: "0" }, command);
  const note = local
    ? "Only this machine reaches the orchestrator: with --host 0.0.0.0 other devices do, too."
    : `On the device. Whoever has this${link ? " or the code" : ""} can join: show it to nobody else.`;
  return [
    el(
      "div",
      {},
      el("h3", {}, "To join"),
      el("div", { class: "copied" }, text, copier(text)),
      el("p", { class: "dim" }, note),
      link ? el("p", {}, el("a", { href: link, rel: "noreferrer" }, local ? "Join in a browser here" : "The link for phones")) : null,
      why ? el("p", { class: "dim" }, `No link for phones: ${why}`) : null,
    ),
    code.length && !local ? qr(code, link ? "QR code of the link for phones" : "QR code of the command") : null,
  ].filter(Boolean);
}

/** A button that copies a text; where the browser forbids that, it selects it. */
function copier(text) {
  const made = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      say(made, "Copied");
    } catch {
      getSelection().selectAllChildren(text);
      say(made, "Selected");
    }
    setTimeout(() => say(made, "Copy"), 2000);
  });
  return made;
}

/** A QR code is dark on light, whatever the page is. */
function qr(rows, label) {
  const size = rows.length + 2 * QUIET;
  const path = rows.flatMap((row, y) =>
    [...row.matchAll(/1+/g)].map((run) => `M${run.index + QUIET} ${y + QUIET}h${run[0].length}v1h-${run[0].length}z`),
  );
  const facts = { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges" };
  return el(
    "div",
    { class: "qr" },
    svg("svg", facts, svg("rect", { width: size, height: size, fill: "#fff" }), svg("path", { d: path.join(""), fill: "#000" })),
    el("p", { class: "dim" }, label),
  );
}
