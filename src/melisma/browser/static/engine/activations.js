// Activations and their derivatives, value by value, as PyTorch computes them.

import { configError } from "./errors.js";

const ROOT = Math.SQRT1_2, DENSITY = 1 / Math.sqrt(2 * Math.PI);
const [BETA, CUBE] = [Math.sqrt(2 / Math.PI), 0.044715]; // of GELU by tanh

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// The error function to 1.2e-7: W. Press et al., Numerical Recipes, 6.2.
const FITTED = [
  -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807,
  -1.13520398, 1.48851587, -0.82215223, 0.17087277,
];
function erf(x) {
  const z = Math.abs(x), t = 1 / (1 + 0.5 * z);
  let sum = 0;
  for (let i = FITTED.length - 1; i >= 0; i--) sum = sum * t + FITTED[i];
  const rest = t * Math.exp(-z * z + sum);
  return x >= 0 ? 1 - rest : rest - 1;
}

function mapped(value, slope) {
  return {
    forward(x, y, count, a) {
      for (let i = 0; i < count; i++) y[i] = value(x[i], a);
    },
    backward(x, y, dy, dx, count, a) {
      for (let i = 0; i < count; i++) dx[i] = dy[i] * slope(x[i], y[i], a);
    },
  };
}

const ACTIVATIONS = {
  // By itself, since nearly every network has it.
  ReLU: {
    forward(x, y, count) {
      for (let i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i]; // NaN stays NaN
    },
    backward(x, y, dy, dx, count) {
      for (let i = 0; i < count; i++) dx[i] = x[i] <= 0 ? 0 : dy[i];
    },
  },
  LeakyReLU: mapped((x, a) => (x > 0 ? x : a * x), (x, y, a) => (x > 0 ? 1 : a)),
  ELU: mapped(
    (x, a) => (x > 0 ? x : a * Math.expm1(x)),
    (x, y, a) => (x > 0 ? 1 : y + a),
  ),
  Sigmoid: mapped(sigmoid, (x, y) => y * (1 - y)),
  Tanh: mapped(Math.tanh, (x, y) => 1 - y * y),
  SiLU: mapped(
    (x) => x * sigmoid(x),
    (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  ),
  GELU: mapped(
    (x) => 0.5 * x * (1 + erf(x * ROOT)),
    (x) => 0.5 * (1 + erf(x * ROOT)) + x * DENSITY * Math.exp(-0.5 * x * x),
  ),
  "GELU by tanh": mapped(
    (x) => 0.5 * x * (1 + Math.tanh(BETA * (x + CUBE * x ** 3))),
    (x) => {
      const t = Math.tanh(BETA * (x + CUBE * x ** 3));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * BETA * (1 + 3 * CUBE * x * x);
    },
  ),
};

export function activation(kind) {
  const found = ACTIVATIONS[kind];
  if (!found) throw configError(`no activation ${kind}`);
  return found;
}
