// The wire format, as melisma.rpc.frames has it: frames, chunks and batches.

import { Float, Malformed, Reader, Writer } from "./msgpack.js";

export const PROTOCOL = [1, 0];
export const CHUNK = 0xc1;
export const BATCH = 0xc2;
export const CHUNK_BYTES = 1 << 16;
/** Largest batch of small frames. */
export const BATCH_BYTES = 1 << 16;
/** Limit of a message. */
export const FRAME_BYTES = 1 << 18;
const PREFIX_BYTES = 9;
const LENGTH_BYTES = 4;

const whole = (value) => typeof value === "bigint" || Number.isSafeInteger(value);
const counted = (value) => Number.isSafeInteger(value);
const number = (value) => typeof value === "number" || typeof value === "bigint";
const text = (value) => typeof value === "string";
const flag = (value) => typeof value === "boolean";
const bytes = (value) => value instanceof Uint8Array;

// Tag, then each field with its check. A body is raw: it is decoded once it is whole.
const FRAMES = {
  Hello: [
    1,
    ["protocol", (v) => Array.isArray(v) && v.length === 2 && v.every(whole)],
    ["library", text],
    ["name", text],
    ["session", bytes],
    ["received", counted],
    ["message_bytes", counted],
    ["functions", (v) => v instanceof Map && [...v].every(([k, f]) => text(k) && flag(f))],
    ["ping_s", number, "float"],
  ],
  Refused: [2, ["reason", text], ["permanent", flag, "optional", false]],
  Ack: [3, ["received", counted]],
  Bye: [4, ["reason", text]],
  Call: [
    5,
    ["id", counted],
    ["function", text],
    ["within_s", (v) => v === null || number(v), "float"],
    ["transfer", counted],
    ["sizes", (v) => Array.isArray(v) && v.every(counted)],
    ["body", null, "raw"],
  ],
  Cancel: [6, ["id", counted]],
  Credit: [7, ["id", counted], ["amount", counted]],
  Result: [
    8,
    ["id", counted],
    ["transfer", counted],
    ["sizes", (v) => Array.isArray(v) && v.every(counted)],
    ["body", null, "raw"],
  ],
  Stream: [9, ["id", counted]],
  Item: [
    10,
    ["id", counted],
    ["transfer", counted],
    ["sizes", (v) => Array.isArray(v) && v.every(counted)],
    ["body", null, "raw"],
  ],
  Fault: [
    11,
    ["id", counted],
    ["refused", flag],
    ["error", text],
    ["message", text],
    ["traceback", text],
  ],
  Abort: [12, ["transfer", counted]],
};
const BY_TAG = new Map(
  Object.entries(FRAMES).map(([kind, [tag, ...fields]]) => [tag, [kind, fields]]),
);

/** Frames of the connection, not of the session: not counted, never sent again. */
export const UNCOUNTED = new Set(["Hello", "Refused", "Ack", "Bye"]);

/** Return a frame, `{kind, …fields}`, as bytes. */
export function encodeFrame(frame) {
  const [tag, ...fields] = FRAMES[frame.kind];
  const writer = new Writer();
  writer.array(1 + fields.length);
  writer.number(tag);
  for (const [name, , kind, otherwise] of fields) {
    const value = frame[name] ?? (kind === "optional" ? otherwise : frame[name]);
    if (kind === "raw") writer.raw(value);
    else if (kind === "float" && value !== null) writer.value(new Float(value));
    else writer.value(value);
  }
  return writer.bytes.slice();
}

/** Return the frame in some bytes; Malformed if they are not one. */
export function decodeFrame(data) {
  const reader = new Reader(data);
  let left = reader.array() - 1;
  const tag = left >= 0 ? reader.value() : null;
  const [kind, fields] = BY_TAG.get(tag) ?? [];
  if (!kind) throw new Malformed(`a frame cannot be decoded: no frame has the tag ${tag}`);
  const frame = { kind };
  for (const [name, check, how, otherwise] of fields) {
    if (left-- <= 0) {
      if (how !== "optional") throw new Malformed(`${kind} without its ${name}`);
      frame[name] = otherwise;
      continue;
    }
    const value = how === "raw" ? reader.raw() : reader.value();
    if (check && !check(value)) throw new Malformed(`${kind} with a wrong ${name}`);
    frame[name] = value;
  }
  for (; left > 0; left--) reader.raw(); // fields of a later version
  if (!reader.isDone) throw new Malformed("bytes follow the end of a frame");
  return frame;
}

/** Return a body as it is put in a frame; nil where it is the first buffer instead. */
export function wrap(body) {
  if (body === null) return new Uint8Array([0xc0]);
  const wrapped = new Uint8Array(body.length + 1);
  wrapped[0] = 0x91;
  wrapped.set(body, 1);
  return wrapped;
}

/** Return the body in a frame, or null if it is the first buffer. */
export function unwrap(wrapped) {
  if (wrapped[0] === 0x91) return wrapped.subarray(1);
  if (wrapped[0] === 0xc0) return null;
  throw new Malformed("the body of a value is not wrapped in an array");
}

/** Return several frames as one message. */
export function batch(frames) {
  const size = frames.reduce((sum, frame) => sum + LENGTH_BYTES + frame.length, 1);
  const message = new Uint8Array(size);
  const view = new DataView(message.buffer);
  message[0] = BATCH;
  let at = 1;
  for (const frame of frames) {
    view.setUint32(at, frame.length, true);
    message.set(frame, at + LENGTH_BYTES);
    at += LENGTH_BYTES + frame.length;
  }
  return message;
}

/** Yield the frames of a batch; Malformed if it is truncated. */
export function* splitBatch(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let at = 1;
  while (at < data.length) {
    const start = at + LENGTH_BYTES;
    if (start > data.length) throw new Malformed("a batch ends within a length");
    at = start + view.getUint32(start - LENGTH_BYTES, true);
    if (at > data.length) throw new Malformed("a batch ends within a frame");
    yield data.subarray(start, at);
  }
}

/** Return a chunk of a transfer. */
export function chunkOf(transfer, part) {
  const message = new Uint8Array(PREFIX_BYTES + part.length);
  message[0] = CHUNK;
  new DataView(message.buffer).setBigUint64(1, BigInt(transfer), true);
  message.set(part, PREFIX_BYTES);
  return message;
}

/** Return [transfer, data] of a chunk. */
export function splitChunk(data) {
  if (data.length < PREFIX_BYTES)
    throw new Malformed(`a chunk of ${data.length} bytes has no room for its prefix`);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  return [Number(view.getBigUint64(1, true)), data.subarray(PREFIX_BYTES)];
}

/** Return text of a peer as one line that is safe to show. */
export function printable(text) {
  return text.slice(0, 500).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ");
}
