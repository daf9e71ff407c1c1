// Marks, and what they mean: beside a drawing on the page, above it on paper.
// A key is {name, kind, colour?, dash?, off?}; a ramp, which has many colours, also {low, high}.

import { el, sized, textWidth } from "./dom.js";
import { LOST, SITTING, font, ink, ramp } from "./format.js";

const SIZE = 14;
const RAMP = 72;
const GAP = 14; // between keys
const LINE = 20; // of keys

/** The keys of a table of colours. */
export const boxes = (colours) =>
  Object.entries(colours).map(([name, colour]) => ({ name, kind: "box", colour }));

/** The key of shades from pale to strong. */
export const rampKey = (name, low, high) => ({ name, kind: "ramp", low, high });

/** Keys on the page; with `choose(key)` they are buttons. */
export const legend = (keys, choose) =>
  el("p", { class: "legend" }, ...keys.map((key) => shown(key, choose)));

function shown(key, choose) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  drawMark(sized(canvas, widthOf(key), SIZE), key);
  const [before, behind] = words(key);
  if (!choose) return el("span", {}, before, canvas, behind);
  if (key.fixed) return el("span", {}, canvas, behind);
  const facts = { type: "button", "aria-pressed": String(!key.off), onclick: () => choose(key) };
  return el("button", { ...facts, title: "show or hide" }, canvas, behind);
}

const widthOf = (key) => (key.kind === "ramp" ? RAMP : SIZE);
const words = ({ name, low, high }) => (low === undefined ? ["", name] : [`${name} ${low}`, high]);

/** Where each key is on paper: [key, x, line]. */
function layout(keys, width) {
  let [x, line] = [0, 0];
  return keys.map((key) => {
    const [before, behind] = words(key);
    const wide = textWidth(before, font()) + textWidth(behind, font()) + widthOf(key) + (before ? 10 : 5);
    if (x && x + wide > width) [x, line] = [0, line + 1];
    const place = [key, x, line];
    x += wide + GAP;
    return place;
  });
}

export const heightOfKeys = (keys, width) =>
  keys.length ? LINE * (layout(keys, width).at(-1)[2] + 1) + 6 : 0;

export function drawKeys(context, keys, width) {
  for (const [key, x, line] of layout(keys, width)) {
    const [before, behind] = words(key);
    const start = x + (before ? textWidth(before, font()) + 5 : 0);
    context.save();
    context.translate(start, LINE * line);
    drawMark(context, key);
    context.restore();
    Object.assign(context, {
      font: font(),
      fillStyle: ink("--ink"),
      textAlign: "left",
      textBaseline: "middle",
    });
    context.fillText(before, x, LINE * line + SIZE / 2);
    context.fillText(behind, start + widthOf(key) + 5, LINE * line + SIZE / 2);
  }
}

/** Draw a key's mark into 14 × 14 pixels; a ramp is wider. */
export function drawMark(context, { kind, colour, dash = [], off }) {
  const middle = SIZE / 2;
  context.globalAlpha = off ? 0.3 : 1;
  if (kind === "box") ((context.fillStyle = colour), context.fillRect(0, 3, SIZE, 8));
  else if (kind === "line") line(context, [0, middle, SIZE, middle], colour, dash, 2);
  else if (kind === "due") line(context, [middle, 0, middle, SIZE], colour ?? ink("--ink"), [4, 3], 1.2);
  else if (kind === "stroke") stroke(context, middle, 0, SIZE);
  else if (kind === "ramp") shades(context);
  else if (kind === "point") dot(context, middle, middle, 4, colour);
  else if (kind === "ring") ring(context, middle, middle, 3.5, colour);
  else ({ arrow, diamond, cross, dot })[kind](context, middle, middle, kind === "dot" ? 3.5 : 4.5);
  context.globalAlpha = 1;
}

function shades(context) {
  for (let x = 0; x < RAMP; x++) {
    context.fillStyle = ramp(x / (RAMP - 1));
    context.fillRect(x, 2, 1, SIZE - 4);
  }
}

export function line(context, [x, y, toX, toY], colour, dash = [], width = 1) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
  context.setLineDash([]);
}

export function stroke(context, x, y, height) {
  context.fillStyle = ink("--ink");
  context.fillRect(x - 0.6, y + 0.08 * height, 1.3, 0.84 * height);
}

export const diamond = (context, x, y, size) =>
  outlined(context, [
    [x, y - size],
    [x + size, y],
    [x, y + size],
    [x - size, y],
  ]);

/** Work that goes on: to the right. */
export const arrow = (context, x, y, size) =>
  outlined(context, [
    [x + size, y],
    [x - size, y - size],
    [x - size, y + size],
  ]);

function outlined(context, corners) {
  context.beginPath();
  for (const [x, y] of corners) context.lineTo(x, y);
  context.closePath();
  context.fillStyle = "#fff";
  context.fill();
  context.strokeStyle = "#000";
  context.lineWidth = 1;
  context.stroke();
}

export function cross(context, x, y, size) {
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

export function ring(context, x, y, size, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.stroke();
}

export function dot(context, x, y, size, colour = SITTING) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.fill();
}
