// The engine: trains a network in the browser as the Python learner does in PyTorch.
//
//   const engine = await openEngine();
//   const net = engine.network(layers, training);  // learning/outline.py, Training
//   net.load(parameters);                          // Map of {shape, data}
//   net.fresh({ rate });                           // an order begins
//   const loss = await net.train(x, y);            // one batch: {shape, data}
//   net.parameters();
//
// It throws errors with the names ConfigError, DataError and ShortOfMemory.

import { configError } from "./errors.js";
import { Network } from "./network.js";
import { compiled } from "./product.js";

const BACKENDS = ["wasm", "js"];

export async function openEngine({ backend } = {}) {
  if (backend !== undefined && !BACKENDS.includes(backend))
    throw configError(`no backend ${backend}: there are ${BACKENDS.join(" and ")}`);
  const module = backend === "js" ? null : await compiled();
  if (!module && backend === "wasm") throw configError("this browser has no WebAssembly SIMD");
  return {
    backend: module ? "wasm" : "js",
    network: (layers, training) => new Network(layers, training, module),
  };
}
