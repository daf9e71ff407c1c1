// Steps of training per second: our engine, on samples that it was given once.

import { openEngine } from "/static/engine/engine.js";

export async function prepared({ backend, layers, training, shapes, sample }) {
  const engine = await openEngine({ backend });
  const net = engine.network(layers, training);
  const random = (count, scale) =>
    Float32Array.from({ length: count }, () => scale * (Math.random() - 0.5));
  const product = (shape) => shape.reduce((a, b) => a * b, 1);
  net.load(new Map(shapes.map(([name, shape]) => [
    name, { shape, data: random(product(shape), 0.1) },
  ])));
  net.fresh();
  const size = training.batch, values = product(sample);
  const x = random(20 * size * values, 1);
  const y = Int32Array.from({ length: 20 * size }, (_, i) => i % 10);
  let next = 0;
  return async () => {
    next = (next + 1) % 20;
    await net.train(
      { shape: [size, ...sample], data: x.slice(next * size * values, (next + 1) * size * values) },
      { shape: [size], data: y.slice(next * size, (next + 1) * size) },
    );
  };
}
