// Samples as they arrive, checked and cached by their content, and as the engine has them.

import { bytesOf, elements, isArray, memoryOf } from "../wire/values.js";
import { DataError } from "./errors.js";
import { same } from "./orders.js";
import { sha256 } from "./sha256.js";

const INPUTS = "x";
const MOST_FIELDS = 256;
const MOST_CHARACTERS = 255;
const REAL = /^(u?int(8|16|32|64)|b?float(16|32|64)|bool)$/;

/** DataError unless this is a batch: tensors of real numbers by name, as many rows each. */
export function checkShard(shard) {
  if (!(shard instanceof Map) || shard.size < 1 || shard.size > MOST_FIELDS)
    throw new DataError("a shard has to be tensors by name");
  for (const [name, value] of shard) {
    if (typeof name !== "string" || name.length < 1 || name.length > MOST_CHARACTERS)
      throw new DataError("a shard has to be tensors by name");
    const isReal = isArray(value) && REAL.test(value.dtype) && value.shape.length;
    if (!isReal || elements(value.shape) * memoryOf(value.dtype)[1] !== value.data.byteLength)
      throw new DataError("a shard has to be tensors of real numbers, a row a sample");
  }
  if (new Set([...shard.values()].map((value) => value.shape[0])).size > 1)
    throw new DataError("the tensors of a shard differ in their numbers of samples");
}

export function lengthOf(shard) {
  return shard.values().next().value.shape[0];
}

/** DataError unless these are as many shards of up to `size` samples, all of one kind. */
export function checkFetched(shards, number, size) {
  if (!Array.isArray(shards) || shards.length !== number)
    throw new DataError(`${number} shards were asked for, and others came`);
  for (const shard of shards) {
    checkShard(shard);
    if (lengthOf(shard) < 1 || lengthOf(shard) > size)
      throw new DataError(`a shard has ${lengthOf(shard)} samples: ${size} were expected`);
    if (!isAlike(shard, shards[0]))
      throw new DataError("the shards that came have samples of several kinds");
  }
}

function isAlike(shard, other) {
  return (
    shard.size === other.size &&
    [...shard].every(([name, value]) => {
      const twin = other.get(name);
      return (
        twin?.dtype === value.dtype && same(twin.shape.slice(1), value.shape.slice(1))
      );
    })
  );
}

/** Return the hash of a shard's content, as melisma.learning.shards.key_of has it. */
export async function keyOf(shard) {
  const parts = [];
  for (const name of [...shard.keys()].sort()) {
    const value = shard.get(name);
    const shape = `(${value.shape.join(", ")}${value.shape.length === 1 ? "," : ""})`;
    const head = `(${quoted(name)}, '${value.dtype}', ${shape})`;
    parts.push(new TextEncoder().encode(head), bytesOf(value));
  }
  return (await sha256(parts)).slice(0, 32);
}

/** Return text as Python's repr writes it. */
export function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", [mark]: `\\${mark}` };
  let written = "";
  for (const letter of text) {
    const code = letter.codePointAt(0);
    if (letter in escaped) written += escaped[letter];
    else if (!/[\p{C}\p{Z}]/u.test(letter) || letter === " ") written += letter;
    else if (code < 0x100) written += `\\x${code.toString(16).padStart(2, "0")}`;
    else if (code < 0x10000) written += `\\u${code.toString(16).padStart(4, "0")}`;
    else written += `\\U${code.toString(16).padStart(8, "0")}`;
  }
  return mark + written + mark;
}

/** Return the bytes of one sample on the wire. */
export function sampleBytes(shard) {
  let total = 0;
  for (const { dtype, shape } of shard.values())
    total += elements(shape.slice(1)) * memoryOf(dtype)[1];
  return total;
}

/** Shards that were fetched; the least recently used are dropped first. */
export class Cache {
  constructor(mostBytes) {
    this._most = mostBytes;
    this._bytes = 0;
    this._shards = new Map();
  }

  /** Return shards by key; `fetch` those that are not here, and check what came. */
  async get(keys, fetch) {
    const missing = [...new Set(keys)].filter((key) => !this._shards.has(key));
    const came = missing.length ? await fetch(missing) : [];
    const fetched = new Map(missing.map((key, i) => [key, came[i]]));
    for (const [key, shard] of fetched)
      if ((await keyOf(shard)) !== key) throw new DataError(`shard ${key} arrived damaged`);
    const found = keys.map((key) => fetched.get(key) ?? this._shards.get(key));
    for (const key of new Set(keys)) this._keep(key, fetched.get(key));
    return found;
  }

  _keep(key, shard) {
    const kept = shard ?? this._shards.get(key);
    if (shard) this._bytes += sizeOf(shard);
    this._shards.delete(key);
    if (kept) this._shards.set(key, kept);
    while (this._bytes > this._most) {
      const [oldest, dropped] = this._shards.entries().next().value;
      this._shards.delete(oldest);
      this._bytes -= sizeOf(dropped);
    }
  }
}

function sizeOf(shard) {
  let total = 0;
  for (const { data } of shard.values()) total += data.byteLength;
  return total;
}

/** Samples of several shards, one after another. */
export class Samples {
  constructor(shards) {
    if (!shards.every((shard) => isAlike(shard, shards[0])))
      throw new DataError("the shards have samples of several kinds");
    this._shards = shards;
    this._starts = [];
    this.length = 0;
    for (const shard of shards) {
      this._starts.push(this.length);
      this.length += lengthOf(shard);
    }
    this.fields = [...shards[0].keys()];
    this.sampleBytes = sampleBytes(shards[0]);
  }

  /** Return the shape of a sample's value. */
  shapeOf(name) {
    return this._shards[0].get(name).shape.slice(1);
  }

  /** Return {x, y} of some rows as the engine has them; y is x where there is none. */
  batch(rows) {
    const x = this._take(INPUTS, rows);
    return { x, y: this.fields.includes("y") ? this._take("y", rows) : x };
  }

  _take(name, rows) {
    const { dtype, shape } = this._shards[0].get(name);
    const each = elements(shape.slice(1));
    const Kind = memoryOf(dtype)[0];
    const per = each * (memoryOf(dtype)[1] / Kind.BYTES_PER_ELEMENT);
    const raw = new Kind(rows.length * per);
    rows.forEach((row, i) => {
      const at = this._shardOf(row);
      const from = (row - this._starts[at]) * per;
      raw.set(this._shards[at].get(name).data.subarray(from, from + per), i * per);
    });
    return { ...numbersOf(name, dtype, raw), shape: [rows.length, ...shape.slice(1)] };
  }

  _shardOf(row) {
    let [low, high] = [0, this._starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this._starts[middle] <= row) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** Bytes of inputs become numbers from 0 to 1, real numbers float32, whole ones int32. */
function numbersOf(name, dtype, raw) {
  if (dtype === "uint8" && name === INPUTS)
    return { dtype: "float32", data: Float32Array.from(raw, (byte) => Math.fround(byte / 255)) };
  if (dtype === "float32") return { dtype, data: raw };
  if (dtype === "float64") return { dtype: "float32", data: Float32Array.from(raw) };
  if (dtype === "float16" || dtype === "bfloat16") {
    const decode = dtype === "float16" ? halfFloat : brainFloat;
    return { dtype: "float32", data: Float32Array.from(raw, decode) };
  }
  const data = new Int32Array(raw.length);
  raw.forEach((value, i) => {
    data[i] = Number(value);
    if (data[i] !== Number(value))
      throw new DataError(`${value} of ${name} does not fit into 32 bits`);
  });
  return { dtype: "int32", data };
}

function halfFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const BITS = new Uint32Array(1);
const FLOAT = new Float32Array(BITS.buffer);
function brainFloat(bits) {
  BITS[0] = bits << 16;
  return FLOAT[0];
}

/** Draws the order of batches; the same seed, the same order. */
export class Draws {
  constructor(...seeds) {
    this._state = 0x9e3779b9;
    for (const seed of seeds) {
      this._state = (this._state ^ Number(BigInt(seed) & 0xffffffffn)) >>> 0;
      this.next();
    }
  }

  /** A number from 0 to below 2³² (mulberry32). */
  next() {
    this._state = (this._state + 0x6d2b79f5) >>> 0;
    let t = this._state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  /** Return 0 … n − 1 in a random order. */
  permutation(n) {
    const order = Uint32Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = Math.floor((this.next() / 2 ** 32) * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}

/** Yield the rows of each batch of `steps` passes over the first `n` samples. */
export function* batchesOf(n, steps, training, draws) {
  for (let pass = 0; pass < steps; pass++) {
    const order = training.shuffle
      ? draws.permutation(n)
      : Uint32Array.from({ length: n }, (_, i) => i);
    for (let at = 0; at < n; at += training.batch)
      yield order.subarray(at, Math.min(n, at + training.batch));
  }
}
