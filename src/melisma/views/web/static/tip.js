// What is under the pointer, beside it. The same is said below a picture, for who does not point.

import { el } from "./dom.js";

const tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });

/** Show lines of text beside the pointer; the first is what is pointed at. */
export function showTip(event, [head, ...lines]) {
  if (event.pointerType === "touch") return hideTip();
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(el("strong", {}, head), ...lines.map((line) => el("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
  const below = event.clientY + 16 + height < window.innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${below ? event.clientY + 16 : event.clientY - height - 10}px`;
}

export const hideTip = () => (tip.hidden = true);
