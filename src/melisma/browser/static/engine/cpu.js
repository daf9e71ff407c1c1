// What layers compute, on the processor: products by WebAssembly, the rest by loops.
//
// Tensors are {data, at}: a typed array in the memory of the products, and its place in
// it, in values. Shapes are given with each call.

import { activation } from "./activations.js";
import { shortOfMemory } from "./errors.js";
import { productOver, SCRATCH } from "./product.js";

const PAGE = 65536;

// A memory for tensors that are all asked for before it is made.
export class Arena {
  constructor() {
    this.size = SCRATCH;
    this.taken = [];
  }

  // A tensor, whose place may be given later: `put` puts it into another.
  tensor(length, type = Float32Array) {
    const tensor = { at: -1, length, type, data: null };
    this.taken.push(tensor);
    return tensor;
  }

  take(length, type = Float32Array) {
    const tensor = this.tensor(length, type);
    tensor.at = this.size;
    this.size += Math.ceil(length / 4) * 4; // vectors begin at multiples of 16 bytes
    return tensor;
  }

  put(tensor, whole, offset = 0) {
    tensor.at = whole.at + offset;
  }

  // Make the memory, give all tensors their data, and return what computes in it.
  async seal(module) {
    const bytes = Math.ceil((4 * this.size) / PAGE) * PAGE;
    let memory;
    try {
      memory = new WebAssembly.Memory({ initial: bytes / PAGE });
    } catch (error) {
      throw shortOfMemory(`${bytes} bytes cannot be had: ${error.message}`);
    }
    for (const tensor of this.taken)
      tensor.data = new tensor.type(memory.buffer, 4 * tensor.at, tensor.length);
    return new Cpu(await productOver(memory, module));
  }
}

export class Cpu {
  constructor(product) {
    this.product = product;
  }

  // y = x·Wᵀ + b of `rows` rows.
  linear(x, W, b, y, rows, inputs, outputs) {
    this.#spread(b, y.data, rows, outputs, 1);
    this.product([x.at, inputs, 1], [W.at, 1, inputs], [y.at, outputs], rows, outputs, inputs, !!b);
  }

  linearBack(x, W, dy, dW, db, dx, rows, inputs, outputs) {
    this.product([dy.at, 1, outputs], [x.at, inputs, 1], [dW.at, inputs], outputs, inputs, rows);
    if (db) this.sums(dy, db, rows, outputs, 1);
    if (dx) this.product([dy.at, outputs, 1], [W.at, inputs, 1], [dx.at, inputs], rows, inputs, outputs);
  }

  // y[n, c, s] = b[c]
  #spread(b, y, samples, channels, size) {
    if (!b) return;
    if (size === 1) {
      for (let n = 0; n < samples; n++) y.set(b.data, n * channels);
      return;
    }
    for (let n = 0, at = 0; n < samples; n++)
      for (let c = 0; c < channels; c++, at += size) y.fill(b.data[c], at, at + size);
  }

  // db[c] = Σ dy[n, c, s]
  sums({ data: dy }, { data: db }, samples, channels, size) {
    for (let c = 0; c < channels; c++) {
      let sum = 0;
      for (let n = 0; n < samples; n++) {
        const at = (n * channels + c) * size;
        for (let s = 0; s < size; s++) sum += dy[at + s];
      }
      db[c] = sum;
    }
  }

  // Each sample by itself: filters × patches.
  conv(x, W, b, y, patches, samples, g) {
    this.#spread(b, y.data, samples, g.outputs, g.seen);
    for (let n = 0; n < samples; n++) {
      for (let i = 0; i < g.groups; i++) {
        unfold(x.data, (n * g.groups + i) * g.channels * g.height * g.width, patches.data, g);
        const out = y.at + (n * g.groups + i) * g.filters * g.seen;
        const filters = W.at + i * g.filters * g.depth;
        this.product([filters, g.depth, 1], [patches.at, g.seen, 1], [out, g.seen], g.filters, g.seen, g.depth, !!b);
      }
    }
  }

  convBack(x, W, dy, dW, db, dx, patches, samples, g) {
    if (db) this.sums(dy, db, samples, g.outputs, g.seen);
    const size = g.channels * g.height * g.width;
    if (dx) dx.data.fill(0, 0, samples * g.groups * size);
    for (let n = 0; n < samples; n++) {
      for (let i = 0; i < g.groups; i++) {
        const filters = i * g.filters * g.depth, image = (n * g.groups + i) * size;
        const up = dy.at + (n * g.groups + i) * g.filters * g.seen;
        unfold(x.data, image, patches.data, g);
        this.product([up, g.seen, 1], [patches.at, 1, g.seen], [dW.at + filters, g.depth], g.filters, g.depth, g.seen, n > 0);
        if (!dx) continue;
        this.product([W.at + filters, 1, g.depth], [up, g.seen, 1], [patches.at, g.seen], g.depth, g.seen, g.filters);
        fold(patches.data, dx.data, image, g);
      }
    }
  }

  // Remembers which of a window is largest: the first, as PyTorch does.
  maxPool({ data: x }, { data: y }, { data: place }, planes, g) {
    windows(planes, g, (out, corner, rows, columns) => {
      let best = -Infinity, at = -1;
      for (let i = 0; i < rows.length; i++)
        for (let j = 0; j < columns.length; j++) {
          const p = corner + rows[i] + columns[j], value = x[p];
          if (value > best || at < 0 || value !== value) {
            best = value;
            at = p;
          }
        }
      y[out] = best;
      place[out] = at;
    });
  }

  maxPoolBack({ data: dy }, { data: place }, { data: dx }, planes, g) {
    dx.fill(0, 0, planes * g.height * g.width);
    for (let i = 0; i < planes * g.seen; i++) dx[place[i]] += dy[i];
  }

  avgPool({ data: x }, { data: y }, planes, g) {
    windows(planes, g, (out, corner, rows, columns) => {
      let sum = 0;
      for (let i = 0; i < rows.length; i++)
        for (let j = 0; j < columns.length; j++) sum += x[corner + rows[i] + columns[j]];
      y[out] = sum / (g.padded ? g.high * g.wide : rows.length * columns.length);
    });
  }

  avgPoolBack({ data: dy }, { data: dx }, planes, g) {
    dx.fill(0, 0, planes * g.height * g.width);
    windows(planes, g, (out, corner, rows, columns) => {
      const share = dy[out] / (g.padded ? g.high * g.wide : rows.length * columns.length);
      for (let i = 0; i < rows.length; i++)
        for (let j = 0; j < columns.length; j++) dx[corner + rows[i] + columns[j]] += share;
    });
  }

  activate(kind, parameter, { data: x }, { data: y }, count) {
    activation(kind).forward(x, y, count, parameter);
  }

  activateBack(kind, parameter, { data: x }, { data: y }, { data: dy }, { data: dx }, count) {
    activation(kind).backward(x, y, dy, dx, count, parameter);
  }

  // Along the middle of outer × n × inner.
  softmax({ data: x }, { data: y }, outer, n, inner, logarithm) {
    along(outer, n, inner, (at) => {
      let most = -Infinity, sum = 0;
      for (let i = 0; i < n; i++) most = Math.max(most, x[at + i * inner]);
      for (let i = 0; i < n; i++) sum += Math.exp(x[at + i * inner] - most);
      const shift = most + Math.log(sum);
      for (let i = 0; i < n; i++) {
        const p = at + i * inner;
        y[p] = logarithm ? x[p] - shift : Math.exp(x[p] - shift);
      }
    });
  }

  softmaxBack({ data: y }, { data: dy }, { data: dx }, outer, n, inner, logarithm) {
    along(outer, n, inner, (at) => {
      let sum = 0;
      for (let i = 0; i < n; i++) {
        const p = at + i * inner;
        sum += logarithm ? dy[p] : dy[p] * y[p];
      }
      for (let i = 0; i < n; i++) {
        const p = at + i * inner;
        dx[p] = logarithm ? dy[p] - Math.exp(y[p]) * sum : y[p] * (dy[p] - sum);
      }
    });
  }

  // x̂ = (x − mean)/√(var + eps), over the outer and inner axes of outer × groups × inner.
  normalise({ data: x }, { data: xhat }, { data: rate }, outer, groups, inner, eps, seen) {
    for (let g = 0; g < groups; g++) {
      const [mean, variance] = moments(x, outer, groups, inner, g);
      rate[g] = 1 / Math.sqrt(variance + eps);
      scaled(x, xhat, outer, groups, inner, g, mean, rate[g]);
      seen?.(g, mean, variance);
    }
  }

  // By statistics that were kept.
  normaliseBy({ data: x }, { data: xhat }, { data: mean }, { data: variance }, outer, groups, inner, eps) {
    for (let g = 0; g < groups; g++)
      scaled(x, xhat, outer, groups, inner, g, mean[g], 1 / Math.sqrt(variance[g] + eps));
  }

  // dx = rate·(dx̂ − mean(dx̂) − x̂·mean(dx̂·x̂))
  normaliseBack({ data: dxhat }, { data: xhat }, { data: rate }, { data: dx }, outer, groups, inner) {
    const count = outer * inner;
    for (let g = 0; g < groups; g++) {
      let sum = 0, dot = 0;
      for (let o = 0; o < outer; o++) {
        const at = (o * groups + g) * inner;
        for (let i = at; i < at + inner; i++) {
          sum += dxhat[i];
          dot += dxhat[i] * xhat[i];
        }
      }
      [sum, dot] = [sum / count, dot / count];
      for (let o = 0; o < outer; o++) {
        const at = (o * groups + g) * inner;
        for (let i = at; i < at + inner; i++) dx[i] = rate[g] * (dxhat[i] - sum - xhat[i] * dot);
      }
    }
  }

  // y[n, c, s] = W[c]·x̂[n, c, s] + b[c]
  affine({ data: xhat }, { data: W }, { data: b }, { data: y }, outer, channels, size) {
    for (let o = 0, i = 0; o < outer; o++)
      for (let c = 0; c < channels; c++)
        for (let s = 0; s < size; s++, i++) y[i] = W[c] * xhat[i] + b[c];
  }

  affineBack(xhat, { data: W }, dy, { data: dW }, db, dxhat, outer, channels, size) {
    this.sums(dy, db, outer, channels, size);
    for (let c = 0; c < channels; c++) {
      let sum = 0;
      for (let o = 0; o < outer; o++) {
        const at = (o * channels + c) * size;
        for (let i = at; i < at + size; i++) {
          sum += dy.data[i] * xhat.data[i];
          if (dxhat) dxhat.data[i] = W[c] * dy.data[i];
        }
      }
      dW[c] = sum;
    }
  }

  embed({ data: words }, { data: W }, { data: y }, count, size) {
    for (let i = 0; i < count; i++) y.set(W.subarray(words[i] * size, (words[i] + 1) * size), i * size);
  }

  embedBack({ data: words }, { data: dy }, { data: dW }, count, size, ignored) {
    dW.fill(0);
    for (let i = 0; i < count; i++) {
      if (words[i] === ignored) continue;
      const to = words[i] * size, from = i * size;
      for (let j = 0; j < size; j++) dW[to + j] += dy[from + j];
    }
  }

  mean({ data: x }, { data: y }, outer, n, inner) {
    along(outer, n, inner, (at, out) => {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += x[at + i * inner];
      y[out] = sum / n;
    });
  }

  meanBack({ data: dy }, { data: dx }, outer, n, inner) {
    along(outer, n, inner, (at, out) => {
      for (let i = 0; i < n; i++) dx[at + i * inner] = dy[out] / n;
    });
  }

  // y = x·mask/(1 − p), of a mask that is drawn here.
  drop({ data: x }, { data: mask }, { data: y }, count, p) {
    const kept = p < 1 ? 1 / (1 - p) : 0;
    for (let i = 0; i < count; i++) {
      mask[i] = Math.random() < p ? 0 : kept;
      y[i] = x[i] * mask[i];
    }
  }

  times({ data: x }, { data: factor }, { data: y }, count) {
    for (let i = 0; i < count; i++) y[i] = x[i] * factor[i];
  }
}

function along(outer, n, inner, each) {
  for (let o = 0; o < outer; o++)
    for (let i = 0; i < inner; i++) each(o * n * inner + i, o * inner + i);
}

function moments(x, outer, groups, inner, g) {
  const count = outer * inner;
  let sum = 0, squares = 0;
  for (let o = 0; o < outer; o++) {
    const at = (o * groups + g) * inner;
    for (let i = at; i < at + inner; i++) sum += x[i];
  }
  const mean = sum / count;
  for (let o = 0; o < outer; o++) {
    const at = (o * groups + g) * inner;
    for (let i = at; i < at + inner; i++) squares += (x[i] - mean) ** 2;
  }
  return [mean, squares / count];
}

function scaled(x, y, outer, groups, inner, g, mean, rate) {
  for (let o = 0; o < outer; o++) {
    const at = (o * groups + g) * inner;
    for (let i = at; i < at + inner; i++) y[i] = (x[i] - mean) * rate;
  }
}

// Places in a window that lie inside the image, for each place of the output: what is
// to be added to the place of the window's corner.
function inside(size, out, kernel, stride, padding, dilation, width) {
  const all = [];
  for (let o = 0; o < out; o++) {
    const from = o * stride - padding, places = [];
    for (let k = 0; k < kernel; k++) {
      const p = k * dilation;
      if (from + p >= 0 && from + p < size) places.push(p * width);
    }
    all.push(Int32Array.from(places));
  }
  return all;
}

// The place of an output, that of its window's corner, and what lies in the window.
function windows(planes, g, each) {
  g.rows ??= inside(g.height, g.outHeight, g.high, g.down, g.top, g.rowStep, g.width);
  g.columns ??= inside(g.width, g.outWidth, g.wide, g.across, g.left, g.columnStep, 1);
  let out = 0;
  for (let plane = 0; plane < planes; plane++)
    for (let row = 0; row < g.outHeight; row++) {
      const begin = (plane * g.height + row * g.down - g.top) * g.width - g.left;
      for (let column = 0; column < g.outWidth; column++, out++)
        each(out, begin + column * g.across, g.rows[row], g.columns[column]);
    }
}

// Columns of the output for which a place of the window lies inside the image.
function span(size, out, stride, from) {
  const first = Math.max(0, Math.ceil(-from / stride));
  return [first, Math.max(first, Math.min(out, Math.ceil((size - from) / stride)))];
}

function taps(g, each) {
  let tap = 0;
  for (let c = 0; c < g.channels; c++)
    for (let i = 0; i < g.high; i++)
      for (let j = 0; j < g.wide; j++, tap++)
        each(tap * g.seen, c * g.height, i * g.rowStep - g.top, j * g.columnStep - g.left);
}

// Patches of an image: channels·kernel × places of the output.
function unfold(x, image, patches, g) {
  taps(g, (to, plane, top, left) => {
    const [first, last] = span(g.width, g.outWidth, g.across, left);
    const whole = first === 0 && last === g.outWidth;
    for (let row = 0; row < g.outHeight; row++, to += g.outWidth) {
      const y = row * g.down + top;
      if (y < 0 || y >= g.height) {
        patches.fill(0, to, to + g.outWidth);
        continue;
      }
      if (!whole) {
        patches.fill(0, to, to + first);
        patches.fill(0, to + last, to + g.outWidth);
      }
      let from = image + (plane + y) * g.width + left + first * g.across;
      for (let i = to + first; i < to + last; i++, from += g.across) patches[i] = x[from];
    }
  });
}

function fold(patches, dx, image, g) {
  taps(g, (from, plane, top, left) => {
    const [first, last] = span(g.width, g.outWidth, g.across, left);
    for (let row = 0; row < g.outHeight; row++, from += g.outWidth) {
      const y = row * g.down + top;
      if (y < 0 || y >= g.height) continue;
      let to = image + (plane + y) * g.width + left + first * g.across;
      for (let i = from + first; i < from + last; i++, to += g.across) dx[to] += patches[i];
    }
  });
}
