// TwoNN in TensorFlow.js, by its kernels alone: what its wasm backend lacks to train
// convolutions is not needed, and a tape would only cost time.

import "/peers/@tensorflow/tfjs-core/dist/tf-core.es2017.min.js";
import "/peers/@tensorflow/tfjs-backend-cpu/dist/tf-backend-cpu.es2017.min.js";
import "/peers/@tensorflow/tfjs-backend-wasm/dist/tf-backend-wasm.es2017.min.js";
import "/peers/@tensorflow/tfjs-backend-webgl/dist/tf-backend-webgl.es2017.min.js";
import "/peers/@tensorflow/tfjs-backend-webgpu/dist/tf-backend-webgpu.es2017.min.js";

const tf = globalThis.tf;

export async function prepared({ backend, training: { batch, rate } }) {
  tf.wasm.setWasmPaths("/peers/@tensorflow/tfjs-backend-wasm/dist/");
  if (!(await tf.setBackend(backend))) throw new Error(`no ${backend}`);
  const random = (...shape) => tf.randomUniform(shape, -0.05, 0.05);
  let weights = [
    random(784, 50), random(50), random(50, 20), random(20), random(20, 10), random(10),
  ];
  const xs = Float32Array.from({ length: batch * 784 }, Math.random);
  const ys = Int32Array.from({ length: batch }, (_, i) => i % 10);
  function step() {
    const inputs = [tf.tensor2d(xs, [batch, 784])];
    for (let i = 0; i < 3; i++) {
      const z = tf.add(tf.matMul(inputs[i], weights[2 * i]), weights[2 * i + 1]);
      inputs.push(i < 2 ? tf.relu(z) : z);
    }
    const target = tf.oneHot(tf.tensor1d(ys, "int32"), 10);
    let slope = tf.div(tf.sub(tf.softmax(inputs[3]), target), batch);
    const next = [];
    for (let i = 2; i >= 0; i--) {
      const [W, b] = weights.slice(2 * i, 2 * i + 2);
      next[2 * i] = tf.sub(W, tf.mul(tf.matMul(tf.transpose(inputs[i]), slope), rate));
      next[2 * i + 1] = tf.sub(b, tf.mul(tf.sum(slope, 0), rate));
      if (i) slope = tf.mul(tf.matMul(slope, tf.transpose(W)), tf.step(inputs[i]));
    }
    return next;
  }
  return async (last) => {
    const next = tf.tidy(step);
    tf.dispose(weights);
    weights = next;
    if (last) await weights[5].data();
  };
}
