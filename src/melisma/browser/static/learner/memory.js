// What a learner says when its memory does not suffice, so that it can go on.

import { ShortOfMemory } from "./errors.js";

/** What WebAssembly says. */
const SHORT = /out of memory|memory access out of bounds|allocation failed/i;

/** Return what `work` comes to; ShortOfMemory in place of what an engine throws. */
export async function toldIfShort(task, samples, work) {
  try {
    return await work();
  } catch (error) {
    if (!isShort(error)) throw error;
    throw new ShortOfMemory(await reasonOf(task, samples));
  }
}

function isShort(error) {
  if (error instanceof RangeError || error?.name === "ShortOfMemory") return true;
  return error?.name === "RuntimeError" && SHORT.test(error.message);
}

async function reasonOf(task, samples) {
  if (!samples) return "out of memory, before a batch was trained: free some of it";
  const batch = Math.min(task.training.batch, samples.length);
  task.fits ??= await largestBatch(task, samples, batch >> 1);
  const reason = `out of memory with ${batch} samples in a batch`;
  if (!task.fits) return `${reason}, and with one alone: use a smaller model`;
  return `${reason}: [training] batch = ${task.fits} would fit`;
}

async function largestBatch(task, samples, most) {
  for (let size = most; size > 0; size >>= 1) {
    try {
      const { x, y } = samples.batch(Uint32Array.from({ length: size }, (_, i) => i));
      await task.renewed().train(x, y);
      return size;
    } catch {
      // not that many either
    }
  }
  return 0;
}
