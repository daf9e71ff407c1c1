// Optimisers: a step of all parameters, which lie side by side, as PyTorch makes it.

import { check, configError } from "./errors.js";

// That say how PyTorch is to compute, and not what.
const HOW = ["foreach", "fused", "capturable", "differentiable"];

const number = (value, least = 0) => Number.isFinite(value) && value >= least;

function sgd({ momentum = 0, dampening = 0, weight_decay = 0, nesterov = false, maximize = false }) {
  check(number(momentum) && number(weight_decay) && Number.isFinite(dampening), "SGD: momentum and weight_decay are numbers from 0 up");
  check(!nesterov || (momentum > 0 && dampening === 0), "SGD: nesterov needs momentum, and no dampening");
  return {
    slots: momentum ? 1 : 0,
    step(w, g, [buffer], rate, steps) {
      for (let i = 0; i < w.length; i++) {
        let d = (maximize ? -g[i] : g[i]) + weight_decay * w[i];
        if (momentum) {
          buffer[i] = steps === 1 ? d : momentum * buffer[i] + (1 - dampening) * d;
          d = nesterov ? d + momentum * buffer[i] : buffer[i];
        }
        w[i] -= rate * d;
      }
    },
  };
}

const adam = (apart) => ({ betas = [0.9, 0.999], eps = 1e-8, weight_decay = apart ? 1e-2 : 0, amsgrad = false, maximize = false }) => {
  const [b1, b2] = betas;
  check(betas.length === 2 && betas.every((b) => number(b) && b < 1), "Adam: betas are two numbers from 0 to below 1");
  check(number(eps) && number(weight_decay), "Adam: eps and weight_decay are numbers from 0 up");
  return {
    slots: amsgrad ? 3 : 2,
    step(w, g, [mean, square, most], rate, steps) {
      const rise = rate / (1 - b1 ** steps), root = Math.sqrt(1 - b2 ** steps);
      for (let i = 0; i < w.length; i++) {
        if (apart) w[i] *= 1 - rate * weight_decay;
        const d = (maximize ? -g[i] : g[i]) + (apart ? 0 : weight_decay * w[i]);
        mean[i] += (1 - b1) * (d - mean[i]);
        square[i] = b2 * square[i] + (1 - b2) * d * d;
        if (amsgrad) most[i] = Math.max(most[i], square[i]);
        w[i] -= (rise * mean[i]) / (Math.sqrt(amsgrad ? most[i] : square[i]) / root + eps);
      }
    },
  };
};

const OPTIMISERS = {
  sgd: [sgd, ["momentum", "dampening", "weight_decay", "nesterov", "maximize"]],
  adam: [adam(false), ["betas", "eps", "weight_decay", "amsgrad", "maximize"]],
  adamw: [adam(true), ["betas", "eps", "weight_decay", "amsgrad", "maximize"]],
};

// {slots, step(w, g, slots, rate, steps)}, of which `steps` counts from 1.
export function optimiserOf(name, given = {}) {
  const key = String(name).toLowerCase();
  if (!Object.hasOwn(OPTIMISERS, key))
    throw configError(`no optimiser ${name}: there are SGD, Adam and AdamW`);
  const [make, known] = OPTIMISERS[key];
  for (const argument of Object.keys(given))
    check(known.includes(argument) || HOW.includes(argument), `${name} has no ${argument} here: ${known.join(", ")}`);
  return make(given);
}

// Scale gradients down to a norm, as clip_grad_norm_ does.
export function clip(g, most) {
  let squares = 0;
  for (let i = 0; i < g.length; i++) squares += g[i] * g[i];
  const scale = most / (Math.sqrt(squares) + 1e-6);
  if (scale < 1) for (let i = 0; i < g.length; i++) g[i] *= scale;
}
