// A job as it is written: what differs from the defaults, and all of it on demand.

import { el } from "./dom.js";

const text = (toml, label) => el("pre", { tabindex: "0", role: "region", "aria-label": label }, toml);

export function jobText(changed, config) {
  if (changed == null) return [text(config, "the job")];
  const keys = config.split("\n").filter((line) => /^\S+ = /.test(line)).length;
  return [
    el("p", { class: "dim" }, "What differs from the defaults:"),
    text(changed, "what differs from the defaults"),
    el("details", {}, el("summary", {}, `All ${keys} keys, defaults included`), text(config, "all keys")),
  ];
}
