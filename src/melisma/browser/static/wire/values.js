// Values as melisma.rpc.values has them: a msgpack body, and buffers of large arrays.
//
//   Python                 here
//   None, bool, str        null, boolean, string
//   int                    number where a double holds it exactly, else BigInt
//   float                  number; `Float` to send a whole one as a float
//   bytes                  Uint8Array
//   list, tuple            Array, Tuple
//   set, frozenset         Set, FrozenSet
//   dict                   Map (a plain object is sent as one)
//   numpy array, tensor    {dtype, shape, data}: numpy's dtype.str, or torch's name
//   numpy scalar           Scalar
//   registered record      {$record: name, …fields}

import { Ext, Float, Malformed, Unsendable, Writer, decode, kindOf } from "./msgpack.js";

export { Float, Malformed, Unsendable };

if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1)
  throw new Error("arrays travel in little-endian order, which this machine has not");

/** Arrays up to this size are part of the body. */
export const INLINE_BYTES = 4096;
const MOST_DIMENSIONS = 64;

export const [TUPLE, SET, FROZENSET, ARRAY, SCALAR, TENSOR, RECORD] = [1, 2, 3, 4, 5, 6, 7];

export class Tuple {
  constructor(items) {
    this.items = items;
  }
}

export class FrozenSet extends Set {}

/** A number with its numpy type. */
export class Scalar {
  constructor(dtype, bytes) {
    this.dtype = dtype;
    this.bytes = bytes;
  }

  get value() {
    const [Kind, size] = NUMPY[this.dtype];
    const numbers = new Kind(this.bytes.slice().buffer);
    return numbers.length * Kind.BYTES_PER_ELEMENT === size && numbers.length === 1
      ? numbers[0]
      : [...numbers];
  }
}

// Memory of each type, and bytes of an element. Half floats stay as they are stored.
const MEMORY = {
  bool: [Uint8Array, 1, "|b1"],
  int8: [Int8Array, 1, "|i1"],
  int16: [Int16Array, 2, "<i2"],
  int32: [Int32Array, 4, "<i4"],
  int64: [BigInt64Array, 8, "<i8"],
  uint8: [Uint8Array, 1, "|u1"],
  uint16: [Uint16Array, 2, "<u2"],
  uint32: [Uint32Array, 4, "<u4"],
  uint64: [BigUint64Array, 8, "<u8"],
  float16: [Uint16Array, 2, "<f2"],
  float32: [Float32Array, 4, "<f4"],
  float64: [Float64Array, 8, "<f8"],
  complex64: [Float32Array, 8, "<c8"],
  complex128: [Float64Array, 16, "<c16"],
  bfloat16: [Uint16Array, 2, null],
};
const TORCH = Object.assign(Object.create(null), MEMORY);
const NUMPY = Object.create(null);
for (const [Kind, size, name] of Object.values(MEMORY))
  if (name) NUMPY[name] = [Kind, size, name];

/** Return the typed array and bytes of an element of a type; undefined if unknown. */
export function memoryOf(dtype) {
  return TORCH[dtype] ?? NUMPY[dtype];
}

/** Return whether a value is an array or a tensor as they travel. */
export function isArray(value) {
  return (
    typeof value === "object" &&
    value !== null &&
    typeof value.dtype === "string" &&
    Array.isArray(value.shape) &&
    ArrayBuffer.isView(value.data)
  );
}

/** Return the bytes of an array's memory, uncopied. */
export function bytesOf({ data }) {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** Return {body, buffers} of a value. */
export function pack(value) {
  const buffers = [];
  const writer = new Writer();
  writer.value(value, (at, item, depth) => plain(at, item, depth, buffers));
  return { body: writer.bytes, buffers };
}

function plain(writer, value, depth, buffers) {
  const other = (at, item, deeper) => plain(at, item, deeper, buffers);
  const extension = (code, write) => {
    const inner = new Writer();
    write(inner);
    writer.extension(code, inner.bytes);
  };
  if (value instanceof Tuple)
    extension(TUPLE, (at) => at.value(value.items, other, depth + 1));
  else if (value instanceof Set)
    extension(value instanceof FrozenSet ? FROZENSET : SET, (at) =>
      at.value([...value], other, depth + 1),
    );
  else if (value instanceof Scalar)
    extension(SCALAR, (at) => at.value([value.dtype, value.bytes]));
  else if (isArray(value)) {
    const memory = checkedBytes(value);
    const code = value.dtype in TORCH ? TENSOR : ARRAY;
    const source = memory.length <= INLINE_BYTES ? memory : buffers.push(memory) - 1;
    extension(code, (at) => at.value([value.dtype, value.shape, source]));
  } else if (isPlain(value) && typeof value.$record === "string")
    extension(RECORD, (at) => {
      const { $record, ...fields } = value;
      at.value([$record, new Map(Object.entries(fields))], other, depth + 1);
    });
  else if (isPlain(value))
    writer.value(new Map(Object.entries(value)), other, depth);
  else throw new Unsendable(`${kindOf(value)} cannot be sent`);
}

function isPlain(value) {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function checkedBytes(array) {
  const [, size] = memoryOf(array.dtype) ?? [];
  if (!size) throw new Unsendable(`an array of ${array.dtype} cannot be sent`);
  const bytes = bytesOf(array);
  if (elements(array.shape) * size !== bytes.length)
    throw new Unsendable(
      `${bytes.length} bytes are no ${array.dtype} array of shape [${array.shape}]`,
    );
  return bytes;
}

/** Return how many elements a shape has; NaN if it is none. */
export function elements(shape) {
  if (!Array.isArray(shape) || shape.length > MOST_DIMENSIONS) return NaN;
  let product = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0) return NaN;
    product *= size;
  }
  return product;
}

/** Return the value of `pack`; Malformed if the bytes are not of one. */
export function unpack(body, buffers = []) {
  const unused = new Map(buffers.entries());
  const extension = (code, data, depth) => {
    const content = decode(data, extension, depth);
    if (code < TUPLE || code > RECORD) throw new Malformed(`unknown extension ${code}`);
    if (!Array.isArray(content)) throw new Malformed("an extension's content is no list");
    if (code === TUPLE) return new Tuple(content);
    if (code === SET || code === FROZENSET) return setOf(code, content);
    if (code === SCALAR) return scalarOf(content);
    if (code === RECORD) return recordOf(content);
    return arrayOf(code, content, unused);
  };
  const value = decode(body, extension);
  if (unused.size) throw new Malformed(`${unused.size} buffers belong to no array`);
  return value;
}

function setOf(code, content) {
  for (const item of content)
    if (Array.isArray(item) || item instanceof Map || isArray(item))
      throw new Malformed(`${kindOf(item)} is no member of a set`);
  return code === SET ? new Set(content) : new FrozenSet(content);
}

function scalarOf(content) {
  const [dtype, bytes] = content;
  const size = typeof dtype === "string" ? NUMPY[dtype]?.[1] : undefined;
  if (content.length !== 2 || !(bytes instanceof Uint8Array) || bytes.length !== size)
    throw new Malformed("a scalar is a type and its bytes");
  return new Scalar(dtype, bytes);
}

function recordOf(content) {
  const [name, fields] = content;
  if (content.length !== 2 || typeof name !== "string" || !(fields instanceof Map))
    throw new Malformed("a record is a name and its fields");
  const record = Object.create(null); // a field may be called __proto__
  record.$record = name;
  for (const [field, value] of fields) {
    if (typeof field !== "string" || field === "$record")
      throw new Malformed("fields of a record have names");
    record[field] = value;
  }
  return record;
}

function arrayOf(code, content, unused) {
  const [dtype, shape, source] = content;
  const known = code === TENSOR ? TORCH : NUMPY;
  if (content.length !== 3 || typeof dtype !== "string" || !known[dtype])
    throw new Malformed("an array is a known type, a shape and its memory");
  const [Kind, size] = known[dtype];
  let memory = source;
  if (Number.isSafeInteger(source)) {
    memory = unused.get(source);
    if (!unused.delete(source)) throw new Malformed(`there is no buffer ${source}`);
  } else if (!(source instanceof Uint8Array))
    throw new Malformed(`${kindOf(source)} is not a buffer`);
  if (elements(shape) * size !== memory.length)
    throw new Malformed(`${memory.length} bytes are no ${dtype} array of that shape`);
  if (memory.byteOffset % Kind.BYTES_PER_ELEMENT) memory = memory.slice();
  const length = memory.length / Kind.BYTES_PER_ELEMENT;
  return { dtype, shape, data: new Kind(memory.buffer, memory.byteOffset, length) };
}
