// An engine that has memory for batches of up to ten samples.

export async function openEngine() {
  const network = () => ({
    load() {},
    fresh() {},
    async train(x) {
      if (x.shape[0] > 10) throw new RangeError("Array buffer allocation failed");
      return 0;
    },
    parameters: () => new Map(),
    dispose() {},
  });
  return { backend: "none", network };
}
