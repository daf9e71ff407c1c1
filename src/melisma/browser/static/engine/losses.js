// Losses: the mean over a batch, and its gradient by the outputs, as PyTorch has them.

import { check, configError, dataError } from "./errors.js";

const IGNORED = -100; // a class that counts for nothing

// Σ over samples of the mean over the places of each, along the middle of n × classes ×
// places.
function crossEntropy(z, classes, dz, n, shape) {
  const [kinds, ...rest] = shape;
  const places = rest.reduce((a, b) => a * b, 1), count = n * places;
  let total = 0;
  for (let i = 0; i < count; i++) {
    const at = Math.floor(i / places) * kinds * places + (i % places);
    const one = classes[i], counts = one !== IGNORED;
    check(!counts || (one >= 0 && one < kinds), `class ${one} of ${kinds}`, dataError);
    let most = -Infinity, sum = 0;
    for (let c = 0; c < kinds; c++) most = Math.max(most, z[at + c * places]);
    for (let c = 0; c < kinds; c++) sum += Math.exp(z[at + c * places] - most);
    if (counts) total += Math.log(sum) + most - z[at + one * places];
    for (let c = 0; c < kinds; c++) {
      const p = at + c * places;
      const share = Math.exp(z[p] - most) / sum - (c === one ? 1 : 0);
      dz[p] = counts ? share / count : 0;
    }
  }
  return total / count;
}

// Of one difference d, or of output z and target t: the value and its slope.
const each = (value, slope) => (z, t, dz, n, shape) => {
  const count = n * shape.reduce((a, b) => a * b, 1);
  let total = 0;
  for (let i = 0; i < count; i++) {
    total += value(z[i] - t[i], z[i], t[i]);
    dz[i] = slope(z[i] - t[i], z[i], t[i]) / count;
  }
  return total / count;
};

const LOSSES = {
  "cross-entropy": crossEntropy,
  mse: each((d) => d * d, (d) => 2 * d),
  mae: each(Math.abs, Math.sign),
  huber: each(
    (d) => (Math.abs(d) <= 1 ? 0.5 * d * d : Math.abs(d) - 0.5),
    (d) => Math.max(-1, Math.min(1, d)),
  ),
  bce: each(
    (d, z, t) => Math.max(z, 0) - z * t + Math.log1p(Math.exp(-Math.abs(z))),
    (d, z, t) => 1 / (1 + Math.exp(-z)) - t,
  ),
};

export function lossOf(name) {
  if (!Object.hasOwn(LOSSES, name))
    throw configError(`no loss ${name}: there are ${Object.keys(LOSSES).join(", ")}`);
  return { byClass: name === "cross-entropy", compute: LOSSES[name] };
}
