// Values and frames of tests/rpc/vectors.json, as `told` and `meant` of vectors.py.

import {
  batch,
  chunkOf,
  decodeFrame,
  encodeFrame,
  splitBatch,
  splitChunk,
  unwrap,
} from "/static/wire/frames.js";
import { Float, FrozenSet, Malformed, Scalar, Tuple, bytesOf, memoryOf, pack, unpack } from "/static/wire/values.js";
import { keyOf } from "/static/learner/samples.js";

const FLOATS = { nan: NaN, inf: Infinity, "-inf": -Infinity, "-0.0": -0, "0.0": 0 };

export const bytes = (hex) =>
  Uint8Array.from({ length: hex.length / 2 }, (_, i) => parseInt(hex.slice(2 * i, 2 * i + 2), 16));
export const hex = (data) =>
  Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function meant(told) {
  if (Array.isArray(told)) return told.map(meant);
  if (typeof told !== "object" || told === null) return told;
  if ("int" in told) return BigInt(told.int);
  if ("float" in told)
    return new Float(typeof told.float === "string" ? FLOATS[told.float] : told.float);
  if ("bytes" in told) return bytes(told.bytes);
  if ("tuple" in told) return new Tuple(meant(told.tuple));
  if ("frozenset" in told) return new FrozenSet(meant(told.frozenset));
  if ("set" in told) return new Set(meant(told.set));
  if ("dict" in told) return new Map(told.dict.map(([k, v]) => [meant(k), meant(v)]));
  if ("scalar" in told) return new Scalar(told.scalar, bytes(told.hex));
  if ("record" in told)
    return { $record: told.record, ...Object.fromEntries(told.fields.map(([k, v]) => [k, meant(v)])) };
  const dtype = told.array ?? told.tensor;
  const [Kind] = memoryOf(dtype);
  return { dtype, shape: told.shape, data: new Kind(bytes(told.hex).buffer) };
}

export function told(value) {
  if (typeof value === "bigint") return { int: String(value) };
  if (typeof value === "number") return number(value);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(told);
  if (value instanceof Uint8Array) return { bytes: hex(value) };
  if (value instanceof Tuple) return { tuple: told(value.items) };
  if (value instanceof FrozenSet) return { frozenset: told([...value]) };
  if (value instanceof Set) return { set: told([...value]) };
  if (value instanceof Map) return { dict: [...value].map(([k, v]) => [told(k), told(v)]) };
  if (value instanceof Scalar) return { scalar: value.dtype, hex: hex(value.bytes) };
  if ("$record" in value) {
    const { $record, ...fields } = value;
    return { record: $record, fields: Object.entries(fields).map(([k, v]) => [k, told(v)]) };
  }
  const { dtype, shape } = value;
  const kind = /^[<|]/.test(dtype) ? "array" : "tensor";
  return { [kind]: dtype, shape, hex: hex(bytesOf(value)) };
}

// Whole floats arrive as numbers like others: JavaScript has but one kind.
function number(value) {
  const found = Object.entries(FLOATS).find(([, special]) => Object.is(special, value));
  if (found && found[0] !== "0.0") return { float: found[0] };
  return Number.isInteger(value) && Number.isSafeInteger(value) ? value : { float: value };
}

function plainFloats(told) {
  if (Array.isArray(told)) return told.map(plainFloats);
  if (typeof told !== "object" || told === null) return told;
  if (typeof told.float === "number" && Number.isSafeInteger(told.float)) return told.float;
  if (told.float === "0.0") return 0;
  return Object.fromEntries(Object.entries(told).map(([k, v]) => [k, plainFloats(v)]));
}

const text = (value) => JSON.stringify(value);

/** Return what is not as the vectors say; nothing is as good as it gets. */
export async function check(vectors) {
  const wrong = [];
  const hold = (what, found, expected) => {
    if (text(found) !== text(expected)) wrong.push(`${what}: ${text(found)} for ${text(expected)}`);
  };
  for (const { what, value, hex: body, buffers } of vectors.values) {
    const packed = pack(meant(value));
    hold(`${what}, packed`, [hex(packed.body), ...packed.buffers.map(hex)], [body, ...buffers]);
    const unpacked = unpack(bytes(body), buffers.map(bytes));
    hold(`${what}, unpacked`, plainFloats(told(unpacked)), plainFloats(value));
  }
  for (const { what, frame, hex: data } of vectors.frames) {
    const decoded = decodeFrame(bytes(data));
    const fields = Object.entries(decoded).map(([name, value]) => [
      name,
      name === "body" ? { raw: hex(value) } : told(value),
    ]);
    hold(`${what}, decoded`, plainFloats(Object.fromEntries(fields)), plainFloats(frame));
    const given = Object.entries(frame).map(([name, value]) => [
      name,
      value?.raw ? bytes(value.raw) : unfloat(meant(value)),
    ]);
    hold(`${what}, encoded`, hex(encodeFrame(Object.fromEntries(given))), data);
  }
  for (const { transfer, data, hex: chunk } of vectors.chunks) {
    hold("chunk", hex(chunkOf(transfer, bytes(data))), chunk);
    const [id, part] = splitChunk(bytes(chunk));
    hold("chunk, split", [id, hex(part)], [transfer, data]);
  }
  for (const { frames, hex: message } of vectors.batches) {
    hold("batch", hex(batch(frames.map(bytes))), message);
    hold("batch, split", [...splitBatch(bytes(message))].map(hex), frames);
  }
  for (const { what, as: kind, hex: data } of vectors.hostile) {
    try {
      wrong.push(`${what}: taken for ${text(told(read(kind, bytes(data))))}`);
    } catch (error) {
      if (!(error instanceof Malformed)) wrong.push(`${what}: ${error.stack}`);
    }
  }
  for (const { what, shard, key } of vectors.shards) hold(what, await keyOf(meant(shard)), key);
  return wrong;
}

const unfloat = (value) => (value instanceof Float ? value.value : value);

function read(kind, data) {
  if (kind === "value") return unpack(data);
  if (kind === "batch") return [...splitBatch(data)];
  if (kind === "chunk") return splitChunk(data);
  const frame = decodeFrame(data);
  return frame.body ? unwrap(frame.body) : 1;
}

/** Spoil the vectors at random; return what was thrown but no Malformed, and how much. */
export function fuzz(vectors, times, seed) {
  const wrong = [];
  let refused = 0;
  const draw = (n) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * n);
  };
  const sources = [
    ...vectors.frames.map(({ hex: data }) => ["frame", bytes(data)]),
    ...vectors.values.map(({ hex: data }) => ["value", bytes(data)]),
    ...vectors.batches.map(({ hex: data }) => ["batch", bytes(data)]),
  ];
  let slowest = 0;
  for (let i = 0; i < times; i++) {
    const [kind, data] = sources[draw(sources.length)];
    let spoilt = data.slice(0, draw(4) ? data.length : draw(data.length + 1));
    for (let n = draw(4); n > 0 && spoilt.length; n--) spoilt[draw(spoilt.length)] = draw(256);
    if (!draw(8)) spoilt = Uint8Array.from([...spoilt, draw(256)]);
    const began = performance.now();
    try {
      read(kind, spoilt);
    } catch (error) {
      refused += 1;
      if (!(error instanceof Malformed)) wrong.push(`${kind} ${hex(spoilt)}: ${error.stack}`);
    }
    slowest = Math.max(slowest, performance.now() - began);
  }
  return { wrong, refused, slowest };
}

