// TwoNN in jax-js: one compiled step, with its own gradient.

import { defaultDevice, init, jit, nn, numpy as np, valueAndGrad } from "/peers/@jax-js/jax/dist/index.js";

export async function prepared({ backend, training: { batch, rate } }) {
  await init(backend);
  defaultDevice(backend);
  const random = (...shape) =>
    np.array(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => 0.1 * (Math.random() - 0.5))).reshape(shape);
  let weights = [
    random(784, 50), random(50), random(50, 20), random(20), random(20, 10), random(10),
  ];
  const x = Float32Array.from({ length: batch * 784 }, Math.random);
  const y = Float32Array.from({ length: batch * 10 }, (_, i) => (i % 10 === (i / 10 | 0) % 10 ? 1 : 0));
  function loss([W1, b1, W2, b2, W3, b3], x, y) {
    const first = nn.relu(np.matmul(x, W1).add(b1));
    const second = nn.relu(np.matmul(first, W2).add(b2));
    return nn.logSoftmax(np.matmul(second, W3).add(b3)).mul(y).sum().mul(-1 / batch);
  }
  const step = jit((w, x, y) => {
    const [value, slopes] = valueAndGrad(loss)(w.map((v) => v.ref), x, y);
    return [value, w.map((v, i) => v.sub(slopes[i].mul(rate)))];
  });
  return async (last) => {
    const [value, next] = step(weights, np.array(x).reshape([batch, 784]), np.array(y).reshape([batch, 10]));
    value.dispose();
    weights = next;
    if (last) await weights[5].ref.data();
  };
}
