// Benchmarks of this device for one task, as melisma.learner.measuring has them.

import { elements, memoryOf } from "../wire/wire.js";
import { toldIfShort } from "./memory.js";
import { Draws, Samples } from "./samples.js";
import { lineOf, sizesOf } from "./speed.js";
import { Session, clock } from "./training.js";

/** Batches that are trained before the clock is read. */
const WARM_UP = 5;

/** Benchmark transfers and training on these shards, and keep the result. */
export async function measure(device, task, keys, link) {
  const { spec, speed } = task;
  const sizes = sizesOf(Math.max(1, keys.length), spec.sizes);
  const partBytes = Math.floor(speed.modelBytes / Math.max(1, ...sizes));
  const fetch = async (n) => {
    if (spec.federated) return (await link.filler(n * partBytes)).data.byteLength;
    let bytes = 0;
    for (const shard of await link.shards(keys.slice(0, n)))
      for (const { data } of shard.values()) bytes += data.byteLength;
    return bytes;
  };
  await fetch(Math.min(...sizes));
  const transfers = await lineOf(fetch, sizes, spec, clock);
  const samples = spec.federated
    ? device.own
    : new Samples(await device.cache.get(keys, (missing) => link.shards(missing)));
  task.checkSamples(samples);
  const compute = await toldIfShort(task, samples, () => timed(task, samples, sizes));
  speed.sampleBytes = spec.federated ? 0 : samples.sampleBytes;
  [speed.link, speed.compute] = [transfers, compute];
}

/** Time one pass over the first n samples, for each size in shards; warmed up first. */
async function timed(task, samples, sizes) {
  const { spec, training } = task;
  const draws = new Draws(0);
  const { net } = task;
  await net.load(begun(task.outline.parameters, draws));
  const work = async (n) => {
    await new Session(net, training.rate).train(samples, n, 1, training, draws);
    return n;
  };
  await work(Math.min(WARM_UP * training.batch, samples.length));
  const counts = new Set(sizes.map((n) => Math.min(n * spec.shard, samples.length)));
  return lineOf(work, [...counts].sort((a, b) => a - b), spec, clock);
}

/** Return small random parameters: a benchmark's, whose values do not matter. */
function begun(shapes, draws) {
  const parameters = new Map();
  for (const [name, { dtype, shape }] of shapes) {
    const data = new (memoryOf(dtype)[0])(elements(shape));
    const inputs = elements(shape.slice(1)) || 1;
    const scale = name.endsWith("running_var") ? 0 : 1 / Math.sqrt(inputs * 2 ** 64);
    if (!scale) data.fill(1);
    else for (let i = 0; i < data.length; i++) data[i] = (draws.next() - 2 ** 31) * 2 * scale;
    parameters.set(name, { dtype, shape, data });
  }
  return parameters;
}
