// A network: layers in one memory, their parameters side by side, trained batch by batch.

import { Arena } from "./cpu.js";
import { check, dataError } from "./errors.js";
import { checkLayers, layerOf } from "./layers.js";
import { lossOf } from "./losses.js";
import { clip, optimiserOf } from "./optimisers.js";

const product = (shape) => shape.reduce((a, b) => a * b, 1);
const alike = (a, b) => a.length === b.length && a.every((s, i) => s === b[i]);

// Layers in a memory of their own, for `batch` samples of a shape at most.
async function built(layers, shape, batch, slots, module) {
  const arena = new Arena();
  const trained = new Map(), kept = new Map(), spares = [];
  const tensors = (list, name, given, parts) => {
    check(!list.has(name), `${name} is used twice`);
    const entry = { shape: given, size: product(given) };
    for (const part of parts) entry[part] = arena.tensor(entry.size);
    list.set(name, entry);
    return entry;
  };
  const net = {
    batch, first: true, wanted: false,
    take: (length, type) => arena.take(length, type),
    spare(length) {
      spares.push(arena.tensor(length));
      return spares.at(-1);
    },
    trained: (name, given) => tensors(trained, name, given, ["value", "gradient"]),
    kept: (name, given, start) =>
      Object.assign(tensors(kept, name, given, ["value"]), { start }),
  };
  const whole = layers[0]?.kind === "Embedding";
  const input = arena.take(batch * product(shape), whole ? Int32Array : Float32Array);
  let out = shape;
  const made = layers.map((layer) => {
    const next = layerOf(layer, out, net);
    [out, net.first] = [next.out, false];
    net.wanted = trained.size > 0; // there is a parameter at or before this layer
    return next;
  });
  check(trained.size, "nothing in this network is trained");
  const slope = arena.take(batch * product(out));
  // What comes from one layer goes into the next, and is not needed after that.
  const most = spares.reduce((a, tensor) => Math.max(a, tensor.length), 1);
  const halves = [arena.take(most), arena.take(most)];
  spares.forEach((tensor, i) => arena.put(tensor, halves[i % 2]));
  const total = [...trained.values()].reduce((sum, { size }) => sum + size, 0);
  const flat = Object.fromEntries(
    ["value", "gradient", ...slots].map((name) => [name, arena.take(total)]),
  );
  let offset = 0;
  for (const entry of trained.values()) {
    arena.put(entry.value, flat.value, offset);
    arena.put(entry.gradient, flat.gradient, offset);
    entry.offset = offset;
    offset += entry.size;
  }
  for (const entry of kept.values()) arena.put(entry.value, arena.take(entry.size));
  const k = await arena.seal(module);
  for (const { value, start } of kept.values()) value.data.fill(start);
  return { k, layers: made, shape, batch, out, input, slope, flat, trained, kept, words: made[0].words };
}

export class Network {
  #layers; #training; #module; #loss; #optimiser; #slots;
  #built = null;
  #loaded = new Map(); // as it came, and what is not the network's own
  #rate; #steps = 0; #begun = false; #correction = null;

  constructor(layers, training, module) {
    checkLayers(layers);
    [this.#layers, this.#training, this.#module] = [layers, training, module];
    this.#loss = lossOf(training.loss);
    this.#optimiser = optimiserOf(training.optimiser, training.arguments);
    const { rate, clip: most, proximal } = training;
    check(rate > 0 && Number.isFinite(rate), `learning rate ${rate}: give a number above 0`);
    check(most == null || (most > 0 && Number.isFinite(most)), `clip = ${most}: give a number above 0`);
    check(!proximal || (proximal > 0 && Number.isFinite(proximal)), `proximal = ${proximal}: give a number from 0 up`);
    this.#slots = [...new Array(this.#optimiser.slots).keys()].map((i) => `slot${i}`);
    if (proximal) this.#slots.push("start");
    this.#rate = rate;
  }

  // Take parameters and buffers by name: {shape, data}. Those not named stay.
  load(parameters) {
    for (const [name, { shape, data }] of parameters) {
      check(data.length === product(shape), `${name} has ${data.length} values, and the shape ${shape}`, dataError);
      if (this.#built) this.#put(name, shape, data);
      this.#loaded.set(name, { shape: [...shape], data: data.slice() });
    }
  }

  #put(name, shape, data) {
    const entry = this.#built.trained.get(name) ?? this.#built.kept.get(name);
    if (!entry) return;
    check(alike(entry.shape, shape), `${name} has the shape ${shape} in place of ${entry.shape}`, dataError);
    entry.value.data.set(data);
  }

  // Begin an order: the optimiser has no state, the rate is that of the cycle, and the
  // proximal term leads back to what is loaded now.
  fresh({ rate = this.#training.rate } = {}) {
    check(rate > 0 && Number.isFinite(rate), `learning rate ${rate}: give a number above 0`);
    [this.#rate, this.#steps, this.#begun, this.#correction] = [rate, 0, false, null];
    for (const slot of this.#slots) this.#built?.flat[slot].data.fill(0);
  }

  // Add this to the gradient of each batch from now on, by name.
  correct(parameters) {
    this.#correction = new Map(parameters);
  }

  // One batch: returns its loss, from before the step.
  async train(x, y) {
    const n = await this.#fit(x);
    const net = this.#built, { flat } = net;
    if (!this.#begun) this.#begin();
    const loss = this.#forward(x, y, 0, n, true);
    let dy = net.slope;
    for (const layer of [...net.layers].reverse()) {
      dy = layer.backward(net.k, dy, n);
      if (!dy) break; // there is nothing to train before it
    }
    const [w, g] = [flat.value.data, flat.gradient.data];
    const { proximal, clip: most } = this.#training;
    if (proximal) {
      const start = flat.start.data;
      for (let i = 0; i < w.length; i++) g[i] += proximal * (w[i] - start[i]);
    }
    if (this.#correction) this.#add(this.#correction);
    if (most != null) clip(g, most);
    const state = this.#slots.filter((name) => name !== "start").map((name) => flat[name].data);
    this.#optimiser.step(w, g, state, this.#rate, ++this.#steps);
    return loss;
  }

  #begin() {
    this.#begun = true;
    if (this.#training.proximal) this.#built.flat.start.data.set(this.#built.flat.value.data);
  }

  #add(correction) {
    for (const [name, { size, gradient }] of this.#built.trained) {
      const data = correction.get(name)?.data;
      check(data?.length === size, `there is no correction of ${name}`, dataError);
      for (let i = 0; i < size; i++) gradient.data[i] += data[i];
    }
  }

  // The mean loss of any number of samples, and how many classes are right.
  async evaluate(x, y) {
    const samples = await this.#fit(x, this.#built?.batch ?? this.#training.batch);
    const net = this.#built;
    let loss = 0, correct = this.#loss.byClass ? 0 : null;
    for (let first = 0; first < samples; first += net.batch) {
      const n = Math.min(net.batch, samples - first);
      loss += n * this.#forward(x, y, first, n, false);
      if (correct !== null) correct += this.#right(y, first, n);
    }
    return { loss: loss / samples, samples, correct };
  }

  // Of the slope's sign: the share of the right class, less one, is the only one below 0.
  #right({ data: classes }, first, n) {
    const { outputs } = this.#built, kinds = this.#built.out[0];
    const places = product(this.#built.out) / kinds;
    let right = 0;
    for (let i = 0; i < n * places; i++) {
      const at = Math.floor(i / places) * kinds * places + (i % places);
      let best = 0;
      for (let c = 1; c < kinds; c++)
        if (outputs[at + c * places] > outputs[at + best * places]) best = c;
      if (best === Number(classes[first * places + i])) right += 1;
    }
    return right;
  }

  #forward(x, y, first, n, training) {
    const net = this.#built;
    this.#read(x, first, n);
    let out = net.input;
    for (const layer of net.layers) out = layer.forward(net.k, out, n, training);
    net.outputs = out.data;
    return this.#loss.compute(out.data, this.#target(x, y, first, n), net.slope.data, n, net.out);
  }

  #read({ data }, first, n) {
    const { input, shape, words } = this.#built;
    const size = product(shape), from = data.subarray(first * size, (first + n) * size);
    if (words !== undefined) {
      check(isWhole(data), "an embedding takes whole numbers", dataError);
      for (let i = 0; i < from.length; i++) {
        const word = Number(from[i]);
        check(word >= 0 && word < words, `word ${word} of ${words}`, dataError);
        input.data[i] = word;
      }
    } else input.data.set(numbers(from));
  }

  #target(x, y, first, n) {
    const { out, input, shape } = this.#built;
    if (this.#loss.byClass) {
      const size = product(out.slice(1));
      check(y && isWhole(y.data), "cross-entropy takes whole numbers of classes", dataError);
      check(y.data.length >= (first + n) * size, `${y.data.length} classes are too few`, dataError);
      return whole(y.data.subarray(first * size, (first + n) * size));
    }
    const size = product(out);
    const given = y ? product(y.shape.slice(1)) : product(shape);
    check(given === size, `the network gives ${out} values for a sample, and the targets have ${given}`, dataError);
    if (!y) return input.data.subarray(0, n * size);
    return whole(y.data.subarray(first * size, (first + n) * size));
  }

  // Have a network for these samples; return how many there are.
  async #fit(x, batch = Math.max(this.#training.batch, x.shape[0])) {
    const [n, ...shape] = x.shape;
    check(n > 0 && x.data.length === product(x.shape), `samples of ${x.shape} have ${x.data.length} values`, dataError);
    const now = this.#built;
    if (now && now.batch >= batch && alike(now.shape, shape)) return n;
    const next = await built(this.#layers, shape, batch, this.#slots, this.#module);
    for (const [name, entry] of [...next.trained, ...next.kept]) {
      if (now) continue;
      const given = this.#loaded.get(name);
      if (!given && next.kept.has(name)) continue; // it does not travel
      check(given, `there is no ${name}: load it first`, dataError);
      check(alike(given.shape, entry.shape), `${name} has the shape ${given.shape} in place of ${entry.shape}`, dataError);
      entry.value.data.set(given.data);
    }
    if (now) {
      for (const name of Object.keys(now.flat)) next.flat[name].data.set(now.flat[name].data);
      for (const [name, entry] of now.kept) next.kept.get(name).value.data.set(entry.value.data);
    }
    this.#built = next;
    return n;
  }

  // Copies of all that was loaded, as training has made it.
  parameters() {
    const all = new Map();
    for (const [name, { shape, data }] of this.#loaded) {
      const entry = this.#built?.trained.get(name) ?? this.#built?.kept.get(name);
      all.set(name, { shape, data: (entry?.value.data ?? data).slice() });
    }
    return all;
  }

  // Let the memory go.
  dispose() {
    this.#built = null;
    this.#loaded.clear();
  }
}

const isWhole = (data) => !(data instanceof Float32Array || data instanceof Float64Array);
// As losses.numbers in Python: bytes of inputs become numbers from 0 to 1.
const numbers = (data) => {
  if (data instanceof Uint8Array) return Float32Array.from(data, (byte) => byte / 255);
  check(!isWhole(data), "this network takes real numbers", dataError);
  return data;
};
const whole = (data) => (typeof data[0] === "bigint" ? Float64Array.from(data, Number) : data);
