// A fog's data: who sent to whom, what became of samples, what that cost.

import { el, svg } from "./dom.js";
import { COSTS, FATES, number, percent, pixel, ramp, short } from "./format.js";
import { Matrix } from "./matrix.js";
import { Stack } from "./stack.js";
import { Table } from "./table.js";

const DISCS = 30; // more devices are a matrix
const ARROWS = 120;
const PLACES = 100;

export class Fog {
  constructor(app) {
    this.app = app;
    this.facts = el("p", { class: "dim" });
    this.graph = el("figure", { class: "chart full" });
    this.matrix = new Matrix({
      title: "Who sent to whom: from row to column, by rank of what they trained on",
      across: "to rank",
    });
    this.fates = new Stack({
      title: "What became of the samples collected, by slot",
      x: "slot",
      colours: FATES,
    });
    this.costs = new Stack({
      title: "Cost per sample collected, by cycle",
      x: "cycle",
      colours: COSTS,
      digits: 3,
    });
    this.table = new Table(columns(app), (row) => row.learner, { label: "devices", filter: true });
    this.root = el(
      "div",
      { class: "charts" },
      this.facts,
      this.graph,
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
    this.#flows();
    this.fates.draw(slots.slot ?? [], { kept: slots.kept, sent: slots.sent, discarded: slots.discarded });
    this.costs.draw(...costsByCycle(store));
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

  #flows() {
    const { store } = this.app;
    const { flows, devices } = store.fog;
    const crowd = (devices.learner?.length ?? 0) > DISCS;
    this.graph.hidden = crowd;
    this.matrix.root.hidden = !crowd;
    if (crowd) this.#crowd(flows, devices);
    else
      this.graph.replaceChildren(el("figcaption", {}, "Who sent to whom"), ...drawn(store, flows, devices));
  }

  /** More devices than a graph bears: ranks by what they trained on, in groups. */
  #crowd(flows, devices) {
    const order = devices.learner.map((_, i) => i).sort((a, b) => devices.trained[b] - devices.trained[a]);
    const size = Math.ceil(order.length / PLACES);
    const place = new Map(order.map((i, rank) => [devices.learner[i], Math.floor(rank / size)]));
    const count = Math.ceil(order.length / size);
    const sent = Array.from({ length: count }, () => new Float64Array(count));
    flows.source?.forEach(
      (source, i) => (sent[place.get(source)][place.get(flows.target[i])] += flows.samples[i]),
    );
    const most = Math.max(1, ...sent.map((row) => Math.max(...row)));
    const name = (rank) =>
      this.app.store.learners[devices.learner[order[rank * size]]] + (size > 1 ? " …" : "");
    const names = Array.from({ length: count }, (_, rank) => name(rank));
    this.matrix.note.textContent = size > 1 ? `${number(order.length)} devices in groups of ${size}.` : "";
    const paint = (row, column) =>
      sent[row][column] ? pixel(ramp(Math.log1p(sent[row][column]) / Math.log1p(most))) : 0;
    this.matrix.draw(names, count, paint, (row, column) => `${number(sent[row][column])} samples`);
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
  const cycles = [...sums.keys()].sort((a, b) => a - b);
  const part = (name) => cycles.map((cycle) => sums.get(cycle)[name] / (sums.get(cycle).collected || 1));
  return [cycles, { process: part("process"), transfer: part("transfer"), error: part("error") }];
}

/** Discs on a ring, and the widest arrows between them. */
function drawn(store, flows, devices) {
  const count = devices.learner?.length ?? 0;
  const sent = (flows.source ?? [])
    .map((source, i) => [source, flows.target[i], flows.samples[i]])
    .filter((flow) => flow[2]);
  if (!count || !sent.length)
    return [el("p", { class: "dim" }, "Nobody has sent anything to another device.")];
  const picture = svg("svg", {
    viewBox: "-310 -235 620 470",
    role: "img",
    "aria-label": "Devices, and the samples that they sent to one another",
  });
  const most = Math.max(1, ...devices.trained);
  const place = new Map();
  devices.learner.forEach((learner, i) => {
    const turn = (2 * Math.PI * i) / count;
    const radius = Math.max(4, 22 * Math.sqrt(devices.trained[i] / most));
    place.set(learner, { x: 180 * Math.sin(turn), y: -180 * Math.cos(turn), radius, i });
  });
  sent.sort((one, two) => two[2] - one[2]);
  const widest = sent.slice(0, ARROWS).reverse();
  for (const flow of widest)
    if (place.has(flow[0]) && place.has(flow[1])) picture.append(...arrow(store, flow, place, sent[0][2]));
  for (const [learner, spot] of place) picture.append(...disc(store, devices, learner, spot));
  const shown = widest.reduce((sum, flow) => sum + flow[2], 0) / sent.reduce((sum, flow) => sum + flow[2], 0);
  const rest =
    widest.length < sent.length
      ? ` Shown are the ${ARROWS} widest of ${number(sent.length)} arrows, ${percent(shown, 0)} of what was sent.`
      : "";
  const note =
    "The area of a disc is what a device trained on, its colour how much it kept of what it collected (the stronger, the more), the width of an arrow what went that way.";
  return [picture, el("p", { class: "dim" }, note + rest)];
}

function arrow(store, [source, target, samples], place, most) {
  const from = place.get(source);
  const to = place.get(target);
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const width = 0.8 + (4 * samples) / most;
  const head = 5 + 1.6 * width;
  // A bow of 12 % keeps the two ways between two devices apart.
  const [bx, by] = [(from.x + to.x) / 2 + 0.12 * dy, (from.y + to.y) / 2 - 0.12 * dx];
  const toward = (spot, gap) => {
    const span = Math.hypot(bx - spot.x, by - spot.y) || 1;
    return [spot.x + ((bx - spot.x) / span) * gap, spot.y + ((by - spot.y) / span) * gap];
  };
  const [sx, sy] = toward(from, Math.min(from.radius + 1, length / 3));
  const [ex, ey] = toward(to, Math.min(to.radius + head, length / 2));
  const [tx, ty] = toward(to, Math.min(to.radius + 1, length / 3));
  const [nx, ny] = [((ty - ey) / head) * width * 1.4, (-(tx - ex) / head) * width * 1.4];
  const opacity = String(0.3 + (0.6 * samples) / most);
  const words = `${store.learners[source]} to ${store.learners[target]}: ${number(samples)} samples`;
  return [
    svg(
      "path",
      { d: `M${sx} ${sy}Q${bx} ${by} ${ex} ${ey}`, class: "flow", "stroke-width": width, opacity },
      svg("title", {}, words),
    ),
    svg("path", { d: `M${tx} ${ty}L${ex + nx} ${ey + ny}L${ex - nx} ${ey - ny}Z`, class: "head", opacity }),
  ];
}

function disc(store, devices, learner, { x, y, radius, i }) {
  const collected = devices.collected[i];
  const kept = collected ? (collected - devices.sent[i] - devices.discarded[i]) / collected : null;
  const name = store.learners[learner];
  const words = `${name}: collected ${number(collected)}, kept ${percent(kept)}, trained on ${number(devices.trained[i])}`;
  const anchor = Math.abs(x) < 18 ? "middle" : x > 0 ? "start" : "end";
  const far = (radius + 8) / 180;
  const label = svg("text", { x: x * (1 + far), y: y * (1 + far) + 4, "text-anchor": anchor });
  label.textContent = short(name, 16);
  const fill = kept === null ? "none" : ramp(kept);
  return [
    svg(
      "circle",
      { cx: x, cy: y, r: radius, class: "disc", fill, tabindex: "0", role: "img", "aria-label": words },
      svg("title", {}, words),
    ),
    label,
  ];
}

/** The devices' table. */
function columns(app) {
  const of = (name) => (row) => app.store.fog.devices[name]?.[row.i];
  const amount = (title, name, digits = 0) => ({
    title,
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
