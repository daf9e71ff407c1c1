// Layers: what each makes of a shape, and how it computes and learns.
//
// A layer is {out, forward, backward}: `out` is the shape of one sample; `forward(k, x,
// n, training)` returns the tensor of n samples; `backward(k, dy, n)` puts the
// gradients of its parameters in their place and returns that of its inputs, in
// `spare()`, unless nobody asks. `k` computes (cpu.js).

import { check, configError } from "./errors.js";

const product = (shape) => shape.reduce((a, b) => a * b, 1);
const pair = (size) => `${size[0]}×${size[1]}`;

// What layers are made with: a memory, and who has the parameters.
//   take(length, type)     a tensor for as long as the network lasts
//   spare(length)          a tensor that the layer after next may use again
//   trained(name, shape)   a parameter: {value, gradient}
//   kept(name, shape, to)  a buffer, {value}, and what it begins with: batch norm's
//   batch, first           samples at most; whether it is the first layer
//   wanted                 whether the gradient of its inputs is

function linear({ in_features: inputs, out_features: outputs, bias }, shape, name, net) {
  check(shape.at(-1) === inputs, `${name} takes ${inputs} values, and ${shape.at(-1)} come`);
  const rows = product(shape) / inputs;
  const W = net.trained(`${name}.weight`, [outputs, inputs]);
  const b = bias ? net.trained(`${name}.bias`, [outputs]) : null;
  const y = net.take(net.batch * rows * outputs);
  const dx = net.wanted ? net.spare(net.batch * rows * inputs) : null;
  let from;
  return {
    out: [...shape.slice(0, -1), outputs],
    forward(k, x, n) {
      from = x;
      k.linear(x, W.value, b?.value, y, n * rows, inputs, outputs);
      return y;
    },
    backward(k, dy, n) {
      k.linearBack(from, W.value, dy, W.gradient, b?.gradient, dx, n * rows, inputs, outputs);
      return dx;
    },
  };
}

// What of an image a window sees.
function geometry(name, shape, { kernel_size: [high, wide], stride: [down, across], padding: [top, left], dilation: [rowStep, columnStep] = [1, 1] }) {
  check(shape.length === 3, `${name} takes images, and samples of ${shape} come`);
  const [channels, height, width] = shape;
  const outHeight = Math.floor((height + 2 * top - rowStep * (high - 1) - 1) / down) + 1;
  const outWidth = Math.floor((width + 2 * left - columnStep * (wide - 1) - 1) / across) + 1;
  check(outHeight > 0 && outWidth > 0, `${name}: a window of ${pair([high, wide])} does not fit ${pair([height, width])}`);
  return {
    channels, height, width, high, wide, down, across, top, left, rowStep, columnStep,
    outHeight, outWidth, seen: outHeight * outWidth,
  };
}

function conv(a, shape, name, net) {
  const g = geometry(name, shape, a);
  check(g.channels === a.in_channels, `${name} takes ${a.in_channels} channels, and ${g.channels} come`);
  const inputs = product(shape);
  g.groups = a.groups;
  g.channels = a.in_channels / a.groups;
  [g.outputs, g.filters] = [a.out_channels, a.out_channels / a.groups];
  g.depth = g.channels * g.high * g.wide;
  const W = net.trained(`${name}.weight`, [g.outputs, g.channels, g.high, g.wide]);
  const b = a.bias ? net.trained(`${name}.bias`, [g.outputs]) : null;
  const y = net.take(net.batch * g.outputs * g.seen);
  const patches = net.take(g.depth * g.seen);
  const dx = net.wanted ? net.spare(net.batch * inputs) : null;
  let from;
  return {
    out: [g.outputs, g.outHeight, g.outWidth],
    forward(k, x, n) {
      from = x;
      k.conv(x, W.value, b?.value, y, patches, n, g);
      return y;
    },
    backward(k, dy, n) {
      k.convBack(from, W.value, dy, W.gradient, b?.gradient, dx, patches, n, g);
      return dx;
    },
  };
}

function maxPool(a, shape, name, net) {
  const g = geometry("MaxPool2d", shape, a);
  const y = net.take(net.batch * g.channels * g.seen);
  const place = net.take(y.length, Int32Array);
  const dx = net.wanted ? net.spare(net.batch * product(shape)) : null;
  return {
    out: [g.channels, g.outHeight, g.outWidth],
    forward(k, x, n) {
      k.maxPool(x, y, place, n * g.channels, g);
      return y;
    },
    backward(k, dy, n) {
      if (dx) k.maxPoolBack(dy, place, dx, n * g.channels, g);
      return dx;
    },
  };
}

function avgPool(a, shape, name, net) {
  const g = { ...geometry("AvgPool2d", shape, a), padded: a.count_include_pad };
  const y = net.take(net.batch * g.channels * g.seen);
  const dx = net.wanted ? net.spare(net.batch * product(shape)) : null;
  return {
    out: [g.channels, g.outHeight, g.outWidth],
    forward(k, x, n) {
      k.avgPool(x, y, n * g.channels, g);
      return y;
    },
    backward(k, dy, n) {
      if (dx) k.avgPoolBack(dy, dx, n * g.channels, g);
      return dx;
    },
  };
}

const activation = (kind, parameter) => (a, shape, name, net) => {
  const size = product(shape), which = kind(a);
  const y = net.take(net.batch * size);
  const dx = net.wanted ? net.spare(net.batch * size) : null;
  let from;
  return {
    out: shape,
    forward(k, x, n) {
      from = x;
      k.activate(which, a[parameter], x, y, n * size);
      return y;
    },
    backward(k, dy, n) {
      if (dx) k.activateBack(which, a[parameter], from, y, dy, dx, n * size);
      return dx;
    },
  };
};

// The sizes before, at and after some axes of a sample, which begin at 1.
function around(shape, first, last = first) {
  return [shape.slice(0, first - 1), shape.slice(first - 1, last), shape.slice(last)].map(product);
}

const softmax = (logarithm) => ({ dim }, shape, name, net) => {
  const [outer, size, inner] = around(shape, dim);
  const y = net.take(net.batch * product(shape));
  const dx = net.wanted ? net.spare(y.length) : null;
  return {
    out: shape,
    forward(k, x, n) {
      k.softmax(x, y, n * outer, size, inner, logarithm);
      return y;
    },
    backward(k, dy, n) {
      if (dx) k.softmaxBack(y, dy, dx, n * outer, size, inner, logarithm);
      return dx;
    },
  };
};

function mean({ dims, keepdim }, shape, name, net) {
  const [first, last] = [dims[0], dims.at(-1)];
  const [outer, size, inner] = around(shape, first, last);
  const y = net.take(net.batch * outer * inner);
  const dx = net.wanted ? net.spare(net.batch * product(shape)) : null;
  return {
    out: [...shape.slice(0, first - 1), ...(keepdim ? dims.map(() => 1) : []), ...shape.slice(last)],
    forward(k, x, n) {
      k.mean(x, y, n * outer, size, inner);
      return y;
    },
    backward(k, dy, n) {
      if (dx) k.meanBack(dy, dx, n * outer, size, inner);
      return dx;
    },
  };
}

function reshape({ shape: out }, shape) {
  check(product(out) === product(shape), `samples of ${shape} do not become ${out}`);
  return { out, forward: (k, x) => x, backward: (k, dy) => dy };
}

function dropout({ p }, shape, name, net) {
  const size = product(shape);
  const [mask, y] = [net.take(net.batch * size), net.take(net.batch * size)];
  const dx = net.wanted ? net.spare(net.batch * size) : null;
  return {
    out: shape,
    forward(k, x, n, training) {
      if (!training) return x;
      k.drop(x, mask, y, n * size, p);
      return y;
    },
    backward(k, dy, n) {
      if (dx) k.times(dy, mask, dx, n * size);
      return dx;
    },
  };
}

// Normalisation and what follows it: axes(n) gives the outer, groups and inner sizes of
// the one, and scale(n) the outer, channels and inner sizes of the other.
function normalising(name, shape, net, { weights, eps, affine, axes, scale, kept = null }) {
  const size = net.batch * product(shape);
  const W = affine ? net.trained(`${name}.weight`, weights) : null;
  const b = affine ? net.trained(`${name}.bias`, weights) : null;
  const [xhat, rate] = [net.take(size), net.take(axes(net.batch)[1])];
  const y = affine ? net.take(size) : xhat;
  const dx = net.wanted ? net.spare(size) : null;
  return {
    out: shape,
    forward(k, x, n, training) {
      const sizes = axes(n);
      if (!training && kept) {
        k.normaliseBy(x, xhat, kept.mean.value, kept.variance.value, ...sizes, eps);
      } else {
        const count = sizes[0] * sizes[2];
        check(!kept || count > 1, `${name}: batch norm needs more than one value a channel`);
        k.normalise(x, xhat, rate, ...sizes, eps, training ? kept?.seen(count) : null);
      }
      if (affine) k.affine(xhat, W.value, b.value, y, ...scale(n));
      return y;
    },
    backward(k, dy, n) {
      if (affine) k.affineBack(xhat, W.value, dy, W.gradient, b.gradient, dx, ...scale(n));
      if (dx) k.normaliseBack(affine ? dx : dy, xhat, rate, dx, ...axes(n));
      return dx;
    },
  };
}

function layerNorm({ normalized_shape: weights, eps, affine }, shape, name, net) {
  const size = product(weights), rows = product(shape) / size;
  check(
    weights.every((s, i) => s === shape[shape.length - weights.length + i]),
    `${name} takes samples that end in ${weights}, and ${shape} come`,
  );
  return normalising(name, shape, net, {
    weights, eps, affine,
    axes: (n) => [1, n * rows, size],
    scale: (n) => [n * rows, size, 1],
  });
}

function groupNorm({ num_groups: groups, num_channels: channels, eps, affine }, shape, name, net) {
  check(shape[0] === channels, `${name} takes ${channels} channels, and ${shape[0]} come`);
  const inner = product(shape) / channels;
  return normalising(name, shape, net, {
    weights: [channels], eps, affine,
    axes: (n) => [1, n * groups, (channels / groups) * inner],
    scale: (n) => [n, channels, inner],
  });
}

function batchNorm({ num_features: channels, eps, affine, momentum }, shape, name, net) {
  check(shape[0] === channels, `${name} takes ${channels} channels, and ${shape[0]} come`);
  const inner = product(shape) / channels;
  const mean = net.kept(`${name}.running_mean`, [channels], 0);
  const variance = net.kept(`${name}.running_var`, [channels], 1);
  const move = ({ value: { data } }, g, to) => (data[g] += momentum * (to - data[g]));
  const seen = (count) => (g, middle, spread) => {
    move(mean, g, middle);
    move(variance, g, (spread * count) / (count - 1));
  };
  const axes = (n) => [n, channels, inner];
  return normalising(name, shape, net, { weights: [channels], eps, affine, axes, scale: axes, kept: { mean, variance, seen } });
}

function embedding({ num_embeddings: words, embedding_dim: size, padding_idx }, shape, name, net) {
  check(net.first, `${name}: an embedding has to be the first layer`);
  const count = product(shape);
  const W = net.trained(`${name}.weight`, [words, size]);
  const y = net.take(net.batch * count * size);
  let from;
  return {
    words, // inputs are whole numbers below this
    out: [...shape, size],
    forward(k, x, n) {
      from = x;
      k.embed(x, W.value, y, n * count, size);
      return y;
    },
    backward(k, dy, n) {
      k.embedBack(from, dy, W.gradient, n * count, size, padding_idx);
      return null;
    },
  };
}

const LAYERS = {
  Linear: linear,
  Conv2d: conv,
  MaxPool2d: maxPool,
  AvgPool2d: avgPool,
  ReLU: activation(() => "ReLU"),
  LeakyReLU: activation(() => "LeakyReLU", "negative_slope"),
  ELU: activation(() => "ELU", "alpha"),
  Sigmoid: activation(() => "Sigmoid"),
  Tanh: activation(() => "Tanh"),
  SiLU: activation(() => "SiLU"),
  GELU: activation((a) => (a.approximate === "tanh" ? "GELU by tanh" : "GELU")),
  Softmax: softmax(false),
  LogSoftmax: softmax(true),
  Mean: mean,
  Reshape: reshape,
  Dropout: dropout,
  LayerNorm: layerNorm,
  GroupNorm: groupNorm,
  BatchNorm: batchNorm,
  Embedding: embedding,
};

const REAL = ["eps", "p", "negative_slope", "alpha", "momentum"]; // all others are whole

// Refuse layers that are not there, and arguments that no layer has.
export function checkLayers(layers) {
  for (const { kind, name, arguments: given } of layers) {
    maker(kind);
    for (const [argument, value] of Object.entries(given))
      for (const v of [value].flat())
        check(
          typeof v !== "number" || (REAL.includes(argument) ? Number.isFinite(v) : Number.isSafeInteger(v) && v >= -1),
          `${kind} ${name}: ${argument} = ${value}`,
        );
  }
}

function maker(kind) {
  const make = Object.hasOwn(LAYERS, kind) && LAYERS[kind];
  if (!make) throw configError(`no layer ${kind}: there are ${Object.keys(LAYERS).join(", ")}`);
  return make;
}

export function layerOf({ kind, name, arguments: a }, shape, net) {
  const layer = maker(kind)(a, shape, name, net);
  check(layer.out.every((size) => Number.isSafeInteger(size) && size > 0), `${kind} ${name} gives samples of ${layer.out}`);
  return layer;
}
