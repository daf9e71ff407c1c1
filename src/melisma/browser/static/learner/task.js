// A task that a learner keeps warm: its network, its speed, and what fits it.

import { elements, memoryOf, pack } from "../wire/wire.js";
import { ConfigError, DataError } from "./errors.js";
import { same } from "./orders.js";
import { Speed } from "./speed.js";

/** A task that is ready to train: its network and speed are kept between cycles. */
export class WarmTask {
  constructor(engine, spec, outline, id) {
    this.spec = spec;
    this.outline = outline;
    this.id = id;
    this.training = plain(spec.training);
    this.idle = false; // no work came since it was last asked for its speed or bid
    this.newest = null; // the latest piece of work; older ones stop
    this.fits = null; // samples of a batch for which memory suffices, once tried
    this._engine = engine;
    this.net = this._made();
    this.speed = new Speed(bytesOf(outline.parameters));
    this.speed.promise(spec.late_at_most);
  }

  _made() {
    try {
      return this._engine.network(this.outline.layers.map(plain), this.training);
    } catch (error) {
      throw new ConfigError(error.message);
    }
  }

  /** Make the network again, and return it. */
  renewed() {
    this.net.dispose();
    this.net = this._made();
    return this.net;
  }

  /** Return the network for an order; buffers that stay here begin with a run. */
  netFor(isFirst) {
    return isFirst && this.training.buffers === "local" ? this.renewed() : this.net;
  }

  /** DataError unless samples have the fields and shapes of the task's. */
  checkSamples(samples) {
    const expected = this.outline.fields;
    const isFit =
      samples.fields.length === expected.size &&
      samples.fields.every((name) => {
        const field = expected.get(name);
        return field && same(field.shape, samples.shapeOf(name));
      });
    if (isFit) return;
    const found = samples.fields.map((name) => `${name}: [${samples.shapeOf(name)}]`);
    const due = [...expected].map(([name, { shape }]) => `${name}: [${shape}]`);
    throw new DataError(`samples of ${found.join(", ")}: expected ${due.join(", ")}`);
  }

  dispose() {
    this.net.dispose();
  }
}

/** Return a record as a plain object, its dictionaries too. */
function plain(record) {
  const copy = {};
  for (const [name, value] of Object.entries(record)) {
    if (name === "$record") continue;
    copy[name] = value instanceof Map ? Object.fromEntries(value) : value;
  }
  return copy;
}

function bytesOf(shapes) {
  let total = 0;
  for (const { dtype, shape } of shapes.values()) {
    const [, size] = memoryOf(dtype) ?? [];
    if (!size) throw new ConfigError(`parameters of ${dtype}: a browser has float32`);
    total += elements(shape) * size;
  }
  return total;
}

/** Return what tells two specs of a task apart. */
export function idOf(spec) {
  return pack(spec).body.toString();
}
