// Who sent to whom: a few devices as discs and arrows, many as a matrix.

import { el, svg } from "./dom.js";
import { font, ink, number, onPaper, percent, pixel, ramp, short } from "./format.js";
import { legend, rampKey } from "./keys.js";
import { printed, saver } from "./paper.js";

const ARROWS = 120;
const PLACES = 100;
// In pixels: the sheet, the ring, the largest disc; characters of a name.
const WIDE = { width: 620, height: 470, ring: 180, disc: 22, name: 16 };
const NARROW = { width: 350, height: 270, ring: 95, disc: 14, name: 9 };
const KEYS = [rampKey("kept of what it collected", "0", "100 %")];
const NOTE =
  "The area of a disc is what a device trained on, its colour how much it kept of what it collected, the width of an arrow what went that way.";

/** Discs on a ring, and the widest arrows between them. */
export class Graph {
  title = "Who sent to whom";

  constructor() {
    this.saver = saver(this);
    this.place = el("div");
    this.note = el("p", { class: "dim" });
    const caption = el("figcaption", {}, el("span", {}, this.title), this.saver);
    this.root = el("figure", { class: "chart full" }, caption, this.place, this.note);
    new ResizeObserver(() => this.store && this.#sheet() !== this.sheet && this.draw(this.store)).observe(this.root);
  }

  #sheet() {
    const { clientWidth } = this.root;
    return clientWidth && clientWidth < WIDE.width ? NARROW : WIDE;
  }

  draw(store) {
    const flows = sent(store);
    this.store = store;
    this.sheet = this.#sheet();
    this.saver.hidden = !flows.length;
    if (!flows.length) {
      this.place.replaceChildren();
      this.note.textContent = "Nobody has sent anything to another device.";
      return;
    }
    const { width, height } = this.sheet;
    const facts = { viewBox: `0 0 ${width} ${height}`, role: "img" };
    const label = { "aria-label": "Devices, and the samples that they sent to one another" };
    this.place.replaceChildren(legend(KEYS), svg("svg", { ...facts, ...label }, ...drawn(store, flows, this.sheet)));
    this.note.textContent = NOTE + rest(flows);
  }

  print() {
    return onPaper(() => {
      const { width, height } = WIDE;
      const elements = drawn(this.store, sent(this.store), WIDE);
      const paint = (paper) => elements.forEach((one) => paper.put(one));
      return printed({ title: this.title, width, height, keys: KEYS, paint });
    });
  }
}

/** What went from whom to whom, most first: [source, target, samples]. */
function sent({ fog: { flows, devices } }) {
  const known = new Set(devices.learner);
  return (flows.source ?? [])
    .map((source, i) => [source, flows.target[i], flows.samples[i]])
    .filter(([source, target, samples]) => samples && known.has(source) && known.has(target))
    .sort((one, two) => two[2] - one[2]);
}

/** How much of all that was sent the arrows stand for, where they are not all. */
function rest(flows) {
  if (flows.length <= ARROWS) return "";
  const sum = (some) => some.reduce((total, flow) => total + flow[2], 0);
  const share = percent(sum(flows.slice(0, ARROWS)) / sum(flows), 0);
  return ` Shown are the ${ARROWS} widest of ${number(flows.length)} arrows, ${share} of what was sent.`;
}

function drawn(store, flows, sheet) {
  const { devices } = store.fog;
  const most = Math.max(1, ...devices.trained);
  const place = new Map();
  devices.learner.forEach((learner, i) => {
    const turn = (2 * Math.PI * i) / devices.learner.length;
    const radius = Math.max(4, sheet.disc * Math.sqrt(devices.trained[i] / most));
    const [dx, dy] = [Math.sin(turn), -Math.cos(turn)];
    const [x, y] = [sheet.width / 2 + sheet.ring * dx, sheet.height / 2 + sheet.ring * dy];
    place.set(learner, { x, y, dx, dy, radius, i });
  });
  const widest = flows.slice(0, ARROWS).reverse();
  return [
    ...widest.flatMap((flow) => arrow(store, flow, place, flows[0][2])),
    ...[...place].flatMap(([learner, spot]) => disc(store, learner, spot, sheet.name)),
  ];
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
  const opacity = 0.3 + (0.6 * samples) / most;
  const words = `${store.learners[source]} to ${store.learners[target]}: ${number(samples)} samples`;
  const line = { fill: "none", stroke: ink("--dim"), "stroke-width": width, opacity, class: "flow" };
  const tip = { d: `M${tx} ${ty}L${ex + nx} ${ey + ny}L${ex - nx} ${ey - ny}Z`, fill: ink("--dim"), opacity };
  return [
    svg("path", { d: `M${sx} ${sy}Q${bx} ${by} ${ex} ${ey}`, ...line }, svg("title", {}, words)),
    svg("path", tip),
  ];
}

function disc(store, learner, { x, y, dx, dy, radius, i }, longest) {
  const { devices } = store.fog;
  const collected = devices.collected[i];
  const kept = collected ? (collected - devices.sent[i] - devices.discarded[i]) / collected : null;
  const name = store.learners[learner];
  const words = `${name}: collected ${number(collected)}, kept ${percent(kept)}, trained on ${number(devices.trained[i])}`;
  const anchor = Math.abs(dx) < 0.1 ? "middle" : dx > 0 ? "start" : "end";
  const far = radius + 8;
  const [, size, family] = font().match(/(\d+)px (.*)/);
  const look = { fill: ink("--ink"), "font-size": size, "font-family": family, "text-anchor": anchor };
  const facts = {
    cx: x,
    cy: y,
    r: radius,
    stroke: ink("--ink"),
    fill: kept === null ? ink("--card") : ramp(kept),
  };
  return [
    svg("circle", { ...facts, tabindex: "0", role: "img", "aria-label": words }, svg("title", {}, words)),
    svg("text", { x: x + far * dx, y: y + far * dy + 4, ...look }, short(name, longest)),
  ];
}

/** Too many for a graph: ranks by what they trained on, in groups; what a `Matrix` draws, and a note. */
export function crowd(store) {
  const { flows, devices } = store.fog;
  const order = devices.learner.map((_, i) => i).sort((a, b) => devices.trained[b] - devices.trained[a]);
  const size = Math.ceil(order.length / PLACES);
  const place = new Map(order.map((i, rank) => [devices.learner[i], Math.floor(rank / size)]));
  const count = Math.ceil(order.length / size);
  const cells = Array.from({ length: count }, () => new Float64Array(count));
  flows.source?.forEach((source, i) => {
    const [from, to] = [place.get(source), place.get(flows.target[i])];
    if (from !== undefined && to !== undefined) cells[from][to] += flows.samples[i];
  });
  const most = Math.max(1, ...cells.map((row) => Math.max(...row)));
  const first = (rank) => store.learners[devices.learner[order[rank * size]]];
  const names = Array.from({ length: count }, (_, rank) => first(rank) + (size > 1 ? " …" : ""));
  return {
    note: size > 1 ? `${number(order.length)} devices in groups of ${size}.` : "",
    names,
    heads: names,
    columns: count,
    keys: [rampKey("samples sent (log)", "0", number(most))],
    cell: (row, column) =>
      cells[row][column] ? pixel(ramp(Math.log1p(cells[row][column]) / Math.log1p(most))) : 0,
    words: (row, column) => `${number(cells[row][column])} samples`,
  };
}
