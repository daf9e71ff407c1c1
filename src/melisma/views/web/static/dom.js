// Elements. Text is set as text, never as markup: names come from learners.

/** Make an element; `facts` are attributes, or listeners where the name begins with "on". */
export function el(tag, facts = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** The same for a drawing. */
export function svg(tag, facts = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(facts)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Set a text if it is another one: what stands still is not laid out again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button. */
export const button = (text, onclick, facts = {}) =>
  el("button", { type: "button", onclick, ...facts }, text);

/** Ask before something that cannot be undone; resolves to whether it was confirmed. */
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    const dialog = el(
      "dialog",
      { onclose: () => (dialog.remove(), resolve(dialog.returnValue === "yes")) },
      el("p", {}, question),
      el(
        "form",
        { method: "dialog", class: "row" },
        el("button", { value: "no", autofocus: true }, "Cancel"),
        el("button", { value: "yes", class: "grave" }, yes),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

const scratch = new OffscreenCanvas(1, 1).getContext("2d");

/** How wide a text is, in pixels. */
export function textWidth(text, font) {
  scratch.font = font;
  return scratch.measureText(text).width;
}

/** Make a canvas as sharp as the screen; returns its context, in CSS pixels. */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** A picture of one pixel a cell, for as many cells as there may be; 0 leaves one empty. */
export function pixels(columns, rows, colour) {
  const canvas = new OffscreenCanvas(columns, rows);
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const cells = new Uint32Array(image.data.buffer);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) cells[row * columns + column] = colour(row, column);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
