// Paper: a canvas context that makes SVG of what is painted, so that one code paints the screen and what
// is saved. A PNG is that SVG at three times its size.

import { button, el, say, svg, textWidth } from "./dom.js";
import { drawKeys, heightOfKeys } from "./keys.js";

const MARGIN = 8;
const SCALE = 3; // 288 dots an inch
const STATE = {
  ...{ fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1 },
  ...{ font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic", dash: "", clipped: null },
};
const ANCHORS = { center: "middle", right: "end", end: "end" };
let clips = 0;

/** As much of CanvasRenderingContext2D as the page's drawings use. */
export class Paper {
  #states = [];
  #path = "";

  constructor(width, height, title) {
    const facts = { width, height, viewBox: `0 0 ${width} ${height}` };
    this.root = svg("svg", facts, svg("title", {}, title));
    Object.assign(this, STATE, { matrix: new DOMMatrix(), clipped: this.root, fillStyle: "#fff" });
    this.fillRect(0, 0, width, height);
  }

  save() {
    this.#states.push({ ...this });
  }

  restore() {
    Object.assign(this, this.#states.pop());
  }

  translate(x, y) {
    this.matrix = this.matrix.translate(x, y);
  }

  rotate(angle) {
    this.matrix = this.matrix.rotate((180 * angle) / Math.PI);
  }

  setLineDash(dash) {
    this.dash = dash.join(" ");
  }

  beginPath() {
    this.#path = "";
  }

  moveTo(x, y) {
    this.#path += `M${short(x)} ${short(y)}`;
  }

  lineTo(x, y) {
    this.#path += `${this.#path ? "L" : "M"}${short(x)} ${short(y)}`;
  }

  closePath() {
    this.#path += "Z";
  }

  rect(x, y, width, height) {
    this.#path += box(x, y, width, height);
  }

  /** A whole circle. */
  arc(x, y, radius) {
    const half = (way) => `a${short(radius)} ${short(radius)} 0 1 0 ${short(way * 2 * radius)} 0`;
    this.#path += `M${short(x - radius)} ${short(y)}${half(1)}${half(-1)}Z`;
  }

  fill() {
    this.put(svg("path", { d: this.#path, ...this.#filled() }));
  }

  stroke() {
    this.put(svg("path", { d: this.#path, ...this.#stroked() }));
  }

  fillRect(x, y, width, height) {
    this.put(svg("path", { d: box(x, y, width, height), ...this.#filled() }));
  }

  strokeRect(x, y, width, height) {
    this.put(svg("path", { d: box(x, y, width, height), ...this.#stroked() }));
  }

  /** What follows until `restore` is seen within the path alone. */
  clip() {
    const id = `clip-${++clips}`;
    const place = this.#placed(svg("path", { d: this.#path }));
    const group = svg("g", { "clip-path": `url(#${id})` });
    this.clipped.append(svg("clipPath", { id }, place), group);
    this.clipped = group;
  }

  measureText(text) {
    return { width: textWidth(text, this.font) };
  }

  fillText(text, x, y, most = Infinity) {
    const [, size, family] = this.font.match(/(\d+)px (.*)/);
    const down = this.textBaseline === "middle" ? 0.35 * size : 0; // not every reader of SVG knows baselines
    const wide = this.measureText(text).width > most;
    const facts = {
      ...{ x: short(x), y: short(y + down), "font-size": size, "font-family": family },
      ...{ "text-anchor": ANCHORS[this.textAlign] ?? "start", ...this.#filled() },
      ...(wide ? { textLength: short(most), lengthAdjust: "spacingAndGlyphs" } : {}),
    };
    this.put(svg("text", facts, text));
  }

  /** Cells of a picture as rectangles, those of one colour as one path. */
  drawImage(picture, x, y, width, height) {
    const { data } = picture.getContext("2d").getImageData(0, 0, picture.width, picture.height);
    const cells = new Uint32Array(data.buffer);
    const [across, down] = [width / picture.width, height / picture.height];
    const paths = new Map();
    for (let row = 0; row < picture.height; row++) {
      for (let from = 0, to; from < picture.width; from = to) {
        const colour = cells[row * picture.width + from];
        for (to = from + 1; to < picture.width && cells[row * picture.width + to] === colour;) to++;
        const cell = box(x + from * across, y + row * down, (to - from) * across, down);
        if (colour) paths.set(colour, (paths.get(colour) ?? "") + cell);
      }
    }
    for (const [colour, d] of paths) {
      const fill = `#${[0, 8, 16].map((at) => ((colour >>> at) & 255).toString(16).padStart(2, "0")).join("")}`;
      this.put(svg("path", { d, fill, "shape-rendering": "crispEdges" }));
    }
  }

  /** Take in an element, where the context stands. */
  put(element) {
    this.clipped.append(this.#placed(element));
  }

  #placed(element) {
    const { a, b, c, d, e, f, isIdentity } = this.matrix;
    if (!isIdentity) element.setAttribute("transform", `matrix(${[a, b, c, d, e, f].map(short).join(" ")})`);
    return element;
  }

  #filled() {
    return { fill: this.fillStyle, ...(this.globalAlpha < 1 ? { "fill-opacity": this.globalAlpha } : {}) };
  }

  #stroked() {
    return {
      ...{ fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth },
      ...(this.dash ? { "stroke-dasharray": this.dash } : {}),
      ...(this.globalAlpha < 1 ? { "stroke-opacity": this.globalAlpha } : {}),
    };
  }
}

const short = (value) => Math.round(100 * value) / 100;
const box = (x, y, width, height) =>
  `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}Z`;

/** A drawing on paper: what its marks mean, and below that what `paint(context, width, height)` paints. */
export function printed({ title, width, height, keys = [], paint }) {
  const above = heightOfKeys(keys, width);
  const paper = new Paper(width + 2 * MARGIN, above + height + 2 * MARGIN, title);
  paper.translate(MARGIN, MARGIN);
  drawKeys(paper, keys, width);
  paper.translate(0, above);
  paint(paper, width, height);
  return paper.root;
}

/** Buttons that save what has a `title` and a `print()`, which returns an SVG element. */
export function saver(picture) {
  const failed = el("span", { class: "dim", role: "status" });
  const save = async (kind, make) => {
    try {
      say(failed, "");
      download(await make(picture.print()), `${named(picture.title)}.${kind}`);
    } catch (error) {
      say(failed, error.message);
    }
  };
  const one = (kind, make) =>
    button(kind.toUpperCase(), () => save(kind, make), { title: `save it as ${kind.toUpperCase()}` });
  return el("span", { class: "save" }, failed, one("svg", asSvg), one("png", asPng));
}

/** Learners choose their names: characters that XML cannot hold are replaced. */
const text = (drawing) => new XMLSerializer().serializeToString(drawing).replace(UNSPEAKABLE, "�");
const UNSPEAKABLE = /[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu;
const asSvg = (drawing) => new Blob([text(drawing)], { type: "image/svg+xml" });

async function asPng(drawing) {
  const [width, height] = ["width", "height"].map((side) => SCALE * Number(drawing.getAttribute(side)));
  const image = new Image(width, height);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text(drawing))}`;
  await image.decode();
  const canvas = el("canvas", { width, height });
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  const made = await new Promise((done) => canvas.toBlob(done));
  if (!made) throw new Error(`no PNG of ${width} × ${height} pixels can be made here: take the SVG`);
  return made;
}

/** A file's name: the page's heading and the picture's title. */
const named = (title) =>
  `${document.querySelector("h1").textContent} ${title.split(/[:,(]/)[0]}`
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");

function download(blob, name) {
  const href = URL.createObjectURL(blob);
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
