// The one place where orders to a learner are checked, before anything is done, as
// melisma.learner.orders has it: an orchestrator is not trusted with the device. A
// `check…` function throws ConfigError.

import { Scalar, isArray } from "../wire/values.js";
import { ConfigError, DataError } from "./errors.js";

/** Samples of an order, each as often as it is trained on. */
const MOST_PASSES = 2 ** 26;
const MOST_BATCH = 2 ** 24;
const MOST_SHARD = 2 ** 24;
const MOST_KEYS = 2 ** 20;
const MOST_CHARACTERS = 255;
const LONGEST_S = 30 * 86_400;
const MOST_LATE = 0.49;
const MOST_CYCLES = 2 ** 40;
const MOST_REPEATS = 100;
const MOST_LAYERS = 4096;
const MOST_FLOAT32 = 3.4028234663852886e38;
const SCHEDULES = ["constant", "linear", "cosine", "exponential"];
const LATE = ["halt", "drop", "wait", "overrun", "carry"];

/** Kinds of lateness in which work lasts beyond the deadline. */
export const LASTS = new Set(["wait", "overrun", "carry"]);

export function checkTask(task) {
  checkText("task", task);
  return task;
}

/** Return a record of this kind; ConfigError for anything else. */
export function recordOf(value, kind) {
  if (value?.$record !== kind) throw new ConfigError(`${shown(value)} is not a ${kind}`);
  return value;
}

export function checkSpec(spec) {
  recordOf(spec, "TaskSpec");
  checkTask(spec.task);
  checkText("model", spec.model);
  checkWhole("seed", spec.seed, 0, 2n ** 63n - 1n);
  checkTraining(spec.training);
  checkWhole("shard", spec.shard, 1, MOST_SHARD);
  checkWhole("steps", spec.steps, 1, MOST_PASSES);
  checkWhole("look_every", spec.look_every, 1, MOST_PASSES);
  for (const name of ["base", "bundle"])
    if (spec[name] !== "" && !/^[0-9a-f]{64}$/.test(spec[name]))
      throw new ConfigError(`${name} ${shown(spec[name])}: give a SHA-256`);
  if (spec.recipe !== "") checkText("recipe", spec.recipe);
  checkWhole("benchmarked", spec.benchmarked, 1, MOST_KEYS);
  checkWhole("sizes", spec.sizes, 1, 2);
  checkWhole("repeats", spec.repeats, 1, MOST_REPEATS);
  if (spec.late_at_most !== 0)
    checkNumber("late_at_most", spec.late_at_most, { most: MOST_LATE });
  for (const name of ["federated", "private", "moving", "exact", "adaptive", "states"])
    checkFlag(name, spec[name]);
  checkDoable(spec);
}

/** Refuse what a browser cannot do, by its name. */
function checkDoable(spec) {
  const what =
    (spec.moving && "samples that move between devices (fog)") ||
    (spec.exact && "work that is redone or coded") ||
    (spec.down !== "fp32" && `models in codec ${shown(spec.down)}`) ||
    (spec.up !== "fp32" && `updates in codec ${shown(spec.up)}`) ||
    (spec.base !== "" && "frozen parameters") ||
    (!isEmpty(spec.submodels) && "submodels");
  if (what) throw new ConfigError(`a browser does not do ${what}: use a Python learner`);
}

function isEmpty(list) {
  return Array.isArray(list) && !list.length;
}

export function checkTraining(training) {
  recordOf(training, "Training");
  for (const name of ["optimiser", "loss"]) checkText(name, training[name]);
  checkOneOf("schedule", training.schedule, SCHEDULES);
  checkOneOf("buffers", training.buffers, ["average", "local"]);
  checkWhole("warmup", training.warmup, 0, MOST_CYCLES);
  checkWhole("cycles", training.cycles, 1, MOST_CYCLES);
  checkNumber("floor", training.floor, { least: -1, most: 1 });
  checkNumber("decay", training.decay, { most: 1 });
  if (training.clip !== null) checkNumber("clip", training.clip);
  checkNumber("proximal", training.proximal, { least: -1 });
  if (training.proximal < 0 || training.floor < 0)
    throw new ConfigError("proximal and floor: give numbers from 0 up");
  checkNumber("learning rate", training.rate, { most: MOST_FLOAT32 });
  checkWhole("batch", training.batch, 1, MOST_BATCH);
  checkFlag("shuffle", training.shuffle);
  if (!(training.arguments instanceof Map))
    throw new ConfigError("arguments of an optimiser have names");
}

/** Check what the orchestrator says of the model; the engine checks each layer. */
export function checkOutline(outline) {
  recordOf(outline, "Outline");
  if (!Array.isArray(outline.layers) || outline.layers.length > MOST_LAYERS)
    throw new ConfigError(`layers: give a list of up to ${MOST_LAYERS}`);
  for (const layer of outline.layers) {
    recordOf(layer, "Layer");
    checkText("layer", layer.kind);
    if (layer.name !== "") checkText("layer", layer.name);
    if (!(layer.arguments instanceof Map))
      throw new ConfigError(`the arguments of layer ${shown(layer.name)} have names`);
  }
  checkTraining(outline.training);
  for (const fields of [outline.parameters, outline.fields]) {
    if (!(fields instanceof Map)) throw new ConfigError("an outline's values have names");
    for (const [name, shaped] of fields) {
      checkText("value", name);
      recordOf(shaped, "Shaped");
      checkText("type", shaped.dtype);
      if (!Array.isArray(shaped.shape) || shaped.shape.length > 8)
        throw new ConfigError(`${name} has no shape`);
      for (const size of shaped.shape) checkWhole(`size of ${name}`, size, 0, 2 ** 40);
    }
  }
}

export function checkBenchmark(keys, spec) {
  const shards = checkedKeys(keys).length;
  if (!spec.federated && !shards) throw new ConfigError("a benchmark needs one shard");
  checkPasses(shards * spec.shard, 1, spec.training);
}

export function checkBid(deadlineS, steps) {
  checkNumber("deadline_s", deadlineS, { most: LONGEST_S });
  checkWhole("steps", steps, 1, MOST_PASSES);
}

/** Check an order to train; `own` is the number of the learner's own samples. */
export function checkTrain(request, spec, own) {
  checkWhole("cycle", request.cycle, 0, MOST_CYCLES);
  const shards = checkedKeys(request.keys).length;
  checkWhole("samples", request.samples, 1, MOST_PASSES);
  checkWhole("first", request.first, 0, request.samples);
  checkFlag("corrected", request.corrected);
  checkFlag("anew", request.anew);
  checkWhole("steps", request.steps, 1, MOST_PASSES);
  checkNumber("deadline_s", request.deadline_s, { most: LONGEST_S });
  checkOneOf("late", request.late, LATE);
  const codecs = [request.down, request.up].some((codec) => !["", "fp32"].includes(codec));
  if (codecs || request.submodel !== "")
    throw new ConfigError("a browser does not do codecs or submodels: use a Python learner");
  if (spec.federated && (shards || request.samples > own))
    throw new ConfigError(
      `${request.samples} samples and ${shards} shards: there are ${own} samples here,` +
        " and no shards in federated mode",
    );
  if (!spec.federated && Math.ceil(request.samples / spec.shard) !== shards)
    throw new ConfigError(
      `${request.samples} samples are not ${shards} shards of ${spec.shard}`,
    );
  if (!spec.federated && request.first % spec.shard && request.first !== request.samples)
    throw new ConfigError(`${request.first} samples of a probe are no whole shards`);
  checkPasses(request.samples, request.steps, spec.training);
}

export function checkFlag(name, value) {
  if (typeof value !== "boolean")
    throw new ConfigError(`${name} = ${shown(value)}: give true or false`);
}

/** DataError unless these are tensors of the names and shapes of the model. */
export function checkParameters(found, outline) {
  const expected = outline.parameters;
  const good =
    found instanceof Map &&
    found.size === expected.size &&
    [...expected].every(([name, { dtype, shape }]) => {
      const value = found.get(name);
      return isArray(value) && value.dtype === dtype && same(value.shape, shape);
    });
  if (!good)
    throw new DataError("the parameters that came are not those of this task's model");
}

export function same(one, other) {
  return one.length === other.length && one.every((size, i) => size === other[i]);
}

function checkedKeys(keys) {
  if (!Array.isArray(keys) || keys.length > MOST_KEYS)
    throw new ConfigError(`shards: give a list of up to ${MOST_KEYS} keys`);
  for (const key of keys) checkText("key", key);
  return keys;
}

function checkPasses(samples, steps, training) {
  const passes = steps * Math.ceil(samples / training.batch) * training.batch;
  if (passes > MOST_PASSES)
    throw new ConfigError(
      `${steps} epochs over ${samples} samples in batches of ${training.batch} are` +
        ` ${passes} samples to train on: give up to ${MOST_PASSES} in an order`,
    );
}

export function checkText(what, text) {
  const length = typeof text === "string" ? [...text].length : 0;
  if (length < 1 || length > MOST_CHARACTERS)
    throw new ConfigError(`${what} ${shown(text)}: give 1 to ${MOST_CHARACTERS} characters`);
  if (/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(text))
    throw new ConfigError(`${what} ${shown(text)}: give printable characters`);
}

function checkOneOf(what, value, known) {
  if (!known.includes(value))
    throw new ConfigError(`${what} = ${shown(value)}: give ${known.join(", ")}`);
}

function checkWhole(what, value, least, most) {
  const isWhole = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!isWhole || !(least <= value && value <= most))
    throw new ConfigError(
      `${what} = ${shown(value)}: give a whole number from ${least} to ${most}`,
    );
}

function checkNumber(what, value, { least = 0, most = Infinity } = {}) {
  const isGood = Number.isFinite(value) && least < value && value <= most;
  if (!isGood)
    throw new ConfigError(
      `${what} = ${shown(value)}: give a finite number above ${least}, up to ${most}`,
    );
}

function shown(value) {
  if (value instanceof Scalar) return value.dtype;
  const text = typeof value === "string" ? JSON.stringify(value) : String(value?.$record ?? value);
  return text.replace(/[\p{C}]/gu, " ").slice(0, 80);
}
