// A learner's part in a cycle: its bars and marks, its cell where there is no room for them, its words.

import {
  DOWNLOAD,
  LOST,
  SITTING,
  TRAINING,
  UPLOAD,
  WHOLE,
  bytes,
  ink,
  joules,
  number,
  pixel,
  seconds,
  shades,
} from "./format.js";
import { arrow, cross, diamond, dot, rampKey, stroke } from "./keys.js";
import { isNeedless } from "./learner.js";
import { COUNTED, GOES_ON, UNDER_WAY, isIdle } from "./store.js";

/** What the bars and marks of a turn are; which of them are seen is for `noteMarks` to say. */
export const MARKS = {
  download: { name: "download", kind: "box", colour: DOWNLOAD },
  training: { name: "training", kind: "box", colour: TRAINING },
  upload: { name: "upload", kind: "box", colour: UPLOAD },
  whole: { name: "times not told", kind: "box", colour: WHOLE },
  underWay: { name: "under way", kind: "box", colour: WHOLE },
  predicted: { name: "predicted", kind: "stroke" },
  halted: { name: "halted", kind: "diamond" },
  goesOn: { name: "goes on", kind: "arrow" },
  lost: { name: "does not count", kind: "cross" },
  idle: { name: "sits out", kind: "dot" },
};

/** The keys of the cells that were `seen`. */
export const cellKeys = (seen) => [
  ...(seen.has("used") ? [rampKey("used of the deadline", "0", "100 %")] : []),
  ...(seen.has("lost") ? [{ name: "does not count", kind: "box", colour: LOST }] : []),
  ...(seen.has("needless") ? [{ name: "not needed", kind: "box", colour: SITTING }] : []),
];

/** Add to `seen` the names in `MARKS` of what a turn shows. */
export function noteMarks(seen, store, row) {
  const { samples, predicted_s, halted, downloaded_s, trained_s, dropped_s } = store.turns;
  const outcome = store.outcome(row);
  if (end_s(store, row)) {
    if (downloaded_s[row] == null) seen.add(outcome === UNDER_WAY ? "underWay" : "whole");
    else seen.add("download").add("training");
    if (downloaded_s[row] != null && trained_s[row] != null) seen.add("upload");
  }
  if (predicted_s[row] != null && samples[row]) seen.add("predicted");
  if (halted[row]) seen.add("halted");
  if (outcome === GOES_ON) seen.add("goesOn");
  if (dropped_s[row] == null ? isIdle(outcome) : isNeedless(outcome)) seen.add("idle");
  else if (dropped_s[row] != null) seen.add("lost");
}

/** When a turn was over, in seconds since its order; of one under way: now. */
export function end_s(store, row) {
  const { measured_s, dropped_s, began_s, trained_s, downloaded_s } = store.turns;
  const known_s = measured_s[row] ?? dropped_s[row];
  if (known_s != null) return known_s;
  if (store.outcome(row) === GOES_ON) return store.deadline_s(store.turns.task[row], store.turns.cycle[row]);
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
  if (store.outcome(row) === GOES_ON) arrow(context, at(end_s(store, row)) - size, middle, size);
  if (halted[row]) diamond(context, at(trained_s[row] ?? measured_s[row] ?? 0), middle, size);
  if (dropped_s[row] != null) {
    if (isNeedless(store.outcome(row))) dot(context, at(dropped_s[row]), middle, 0.7 * size);
    else cross(context, at(dropped_s[row]), middle, size);
  } else if (isIdle(store.outcome(row))) dot(context, x + size, middle, 0.8 * size);
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
export function cellPixel(store, row, deadline_s, seen) {
  if (row === undefined) return 0;
  const { dropped_s, measured_s, samples } = store.turns;
  if (dropped_s[row] != null) {
    const is = isNeedless(store.outcome(row)) ? "needless" : "lost";
    seen.add(is);
    return palette()[is];
  }
  if (!samples[row] || measured_s[row] == null) return 0;
  seen.add("used");
  return palette().used[Math.round((SHADES - 1) * Math.min(1, measured_s[row] / deadline_s))];
}

/** A turn in words. */
export function describe(store, row) {
  const t = store.turns;
  const several = store.tasks.length > 1 ? ` of ${store.tasks[t.task[row]].name}` : "";
  const said = [`${store.learners[t.learner[row]]}, cycle ${number(t.cycle[row])}${several}`];
  if (t.samples[row]) said.push(`given ${number(t.samples[row])} samples × ${number(t.steps[row])} epochs`);
  if (store.option(row) && t.samples[row])
    said.push(`by ${store.option(row)}, ${bytes(t.saved_bytes[row])} saved`);
  if (t.predicted_s[row] != null && t.samples[row]) said.push(`predicted ${seconds(t.predicted_s[row])}`);
  if (t.downloaded_s[row] != null) said.push(`had its model and data after ${seconds(t.downloaded_s[row])}`);
  if (t.trained_s[row] != null)
    said.push(`${t.halted[row] ? "halted" : "stopped training"} after ${seconds(t.trained_s[row])}`);
  if (t.measured_s[row] != null) said.push(`update here after ${seconds(t.measured_s[row])}`);
  if (t.trained[row] != null) said.push(`trained on ${number(t.trained[row])} samples`);
  if (t.predicted_j?.[row] != null && t.samples[row]) said.push(`planned with ${joules(t.predicted_j[row])}`);
  if (t.spent_j?.[row] != null) said.push(`spent ${joules(t.spent_j[row])}`);
  if (t.cost?.[row] != null) said.push(`cost ${number(t.cost[row], 2)}`);
  const outcome = store.outcome(row);
  if (t.carried?.[row] != null) said.push(`an update came whose order was ${number(t.carried[row])} cycles old`);
  if (outcome === GOES_ON) said.push("goes on: its update counts when it comes");
  else if (outcome === COUNTED) said.push(t.halted[row] ? "counted; it halted to be in time" : "counted");
  else
    said.push(
      t.dropped_s[row] == null ? outcome : `does not count (${seconds(t.dropped_s[row])}): ${outcome}`,
    );
  return said;
}
