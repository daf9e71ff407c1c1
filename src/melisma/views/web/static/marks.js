// Draw what learners did: bars and marks as in runs/pictures.py.

import {
  DOWNLOAD,
  LOST,
  SITTING,
  TRAINING,
  UPLOAD,
  WHOLE,
  ink,
  number,
  pixel,
  seconds,
  shades,
} from "./format.js";
import { isNeedless } from "./learner.js";
import { COUNTED, SITS_OUT, UNDER_WAY } from "./store.js";

/** What each mark means: [name, kind, colour]. */
export const LEGEND = [
  ["download", "bar", DOWNLOAD],
  ["training", "bar", TRAINING],
  ["upload", "bar", UPLOAD],
  ["times not told", "bar", WHOLE],
  ["predicted", "stroke"],
  ["halted", "diamond"],
  ["does not count", "cross", LOST],
  ["sits out", "dot", SITTING],
];

/** When a turn was over, in seconds since its order; of one under way: now. */
export function end_s(store, row) {
  const { measured_s, dropped_s, began_s, trained_s, downloaded_s } = store.turns;
  const known_s = measured_s[row] ?? dropped_s[row];
  if (known_s != null) return known_s;
  const last_s = trained_s[row] ?? downloaded_s[row] ?? 0;
  const running = store.outcome(row) === UNDER_WAY && !store.ended && store.now_s !== null;
  return running ? Math.max(last_s, store.now_s - began_s[row]) : last_s;
}

/** The bars of a turn: [from, to, colour] in seconds since its order. */
function bars(store, row, colour) {
  const { downloaded_s, trained_s } = store.turns;
  const end = end_s(store, row);
  if (colour) return [[0, end, colour]];
  const down = downloaded_s[row];
  const trained = trained_s[row];
  if (down == null) return [[0, end, WHOLE]];
  if (trained == null)
    return [
      [0, down, DOWNLOAD],
      [down, end, TRAINING],
    ];
  return [
    [0, down, DOWNLOAD],
    [down, trained, TRAINING],
    [trained, end, UPLOAD],
  ];
}

/** Draw one turn from x on, with `scale` pixels a second; nothing passes `right`. */
export function drawTurn(context, store, row, { x, y, height, scale, right, colour }) {
  const { samples, predicted_s, halted, trained_s, measured_s, dropped_s } = store.turns;
  const at = (time_s) => Math.min(x + time_s * scale, right);
  const top = y + 0.19 * height;
  const middle = y + height / 2;
  context.globalAlpha = dropped_s[row] == null ? 1 : 0.35;
  for (const [from, to, paint] of bars(store, row, colour)) {
    context.fillStyle = paint;
    context.fillRect(at(from), top, Math.max(at(to) - at(from), to > from ? 0.6 : 0), 0.62 * height);
  }
  context.globalAlpha = 1;
  const size = Math.min(5, height / 3);
  if (predicted_s[row] != null && samples[row]) stroke(context, at(predicted_s[row]), y, height);
  if (halted[row]) diamond(context, at(trained_s[row] ?? measured_s[row] ?? 0), middle, size);
  if (dropped_s[row] != null) {
    if (isNeedless(store.outcome(row))) dot(context, at(dropped_s[row]), middle, 0.7 * size);
    else cross(context, at(dropped_s[row]), middle, size);
  } else if (store.outcome(row) === SITS_OUT) dot(context, x + size, middle, 0.8 * size);
}

function stroke(context, x, y, height) {
  context.fillStyle = ink("--ink");
  context.fillRect(x - 0.6, y + 0.08 * height, 1.3, 0.84 * height);
}

function diamond(context, x, y, size) {
  context.beginPath();
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.closePath();
  context.fillStyle = "#fff";
  context.fill();
  context.strokeStyle = "#000";
  context.lineWidth = 1;
  context.stroke();
}

function cross(context, x, y, size) {
  for (const [colour, width] of [
    [ink("--page"), 4.5],
    [LOST, 2.5],
  ]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x - size, y + size);
    context.lineTo(x + size, y - size);
    context.stroke();
  }
}

function dot(context, x, y, size) {
  context.fillStyle = SITTING;
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.fill();
}

/** Draw a mark of the legend. */
export function drawMark(context, kind, colour) {
  if (kind === "bar") ((context.fillStyle = colour), context.fillRect(0, 3, 14, 8));
  else if (kind === "stroke") stroke(context, 7, 0, 14);
  else ({ diamond, cross, dot })[kind](context, 7, 7, kind === "dot" ? 3.5 : 4.5);
}

const SHADES = 32;
let made = { theme: null };

/** Pixels of turns that are too narrow for bars, made once a theme. */
function palette() {
  const { theme } = document.documentElement.dataset;
  if (made.theme !== theme)
    made = { theme, used: shades(SHADES).map(pixel), lost: pixel(LOST), needless: pixel(SITTING) };
  return made;
}

/** How much of the deadline a turn used, as a pixel; 0 where there is nothing to show. */
export function cellPixel(store, row, deadline_s) {
  if (row === undefined) return 0;
  const { dropped_s, measured_s, samples } = store.turns;
  if (dropped_s[row] != null) return isNeedless(store.outcome(row)) ? palette().needless : palette().lost;
  if (!samples[row] || measured_s[row] == null) return 0;
  return palette().used[Math.round((SHADES - 1) * Math.min(1, measured_s[row] / deadline_s))];
}

/** A turn in words. */
export function describe(store, row) {
  const t = store.turns;
  const several = store.tasks.length > 1 ? ` of ${store.tasks[t.task[row]].name}` : "";
  const said = [`${store.learners[t.learner[row]]}, cycle ${number(t.cycle[row])}${several}`];
  if (t.samples[row]) said.push(`given ${number(t.samples[row])} samples × ${number(t.steps[row])} steps`);
  if (t.predicted_s[row] != null && t.samples[row]) said.push(`predicted ${seconds(t.predicted_s[row])}`);
  if (t.downloaded_s[row] != null) said.push(`had its model and data after ${seconds(t.downloaded_s[row])}`);
  if (t.trained_s[row] != null)
    said.push(`${t.halted[row] ? "halted" : "stopped training"} after ${seconds(t.trained_s[row])}`);
  if (t.measured_s[row] != null) said.push(`update here after ${seconds(t.measured_s[row])}`);
  if (t.trained[row] != null) said.push(`trained on ${number(t.trained[row])} samples`);
  if (t.cost?.[row] != null) said.push(`cost ${number(t.cost[row], 2)}`);
  const outcome = store.outcome(row);
  if (outcome === COUNTED) said.push(t.halted[row] ? "counted; it halted to be in time" : "counted");
  else
    said.push(
      t.dropped_s[row] == null ? outcome : `does not count (${seconds(t.dropped_s[row])}): ${outcome}`,
    );
  return said;
}
