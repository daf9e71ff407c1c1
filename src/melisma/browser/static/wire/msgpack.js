// msgpack, as much of it as the wire needs: nothing is believed, nothing recurses deeper
// than DEPTH, and no length is taken at its word before the bytes are there.

/** Received bytes that break the protocol. */
export class Malformed extends Error {
  name = "Malformed";
}

/** A value that cannot be sent. */
export class Unsendable extends TypeError {
  name = "Unsendable";
}

/** A number that travels as a float even where it is whole. */
export class Float {
  constructor(value) {
    this.value = value;
  }
}

/** An extension: its code, and its content as bytes. */
export class Ext {
  constructor(code, data) {
    this.code = code;
    this.data = data;
  }
}

export const DEPTH = 256;
const MOST_UINT = (1n << 64n) - 1n;
const LEAST_INT = -(1n << 63n);
// `fatal` refuses what is not UTF-8, as the other side does; a BOM is text.
const TEXT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const UTF8 = new TextEncoder();

export class Writer {
  constructor(size = 256) {
    this._bytes = new Uint8Array(size);
    this._view = new DataView(this._bytes.buffer);
    this._at = 0;
  }

  /** The bytes so far, uncopied. */
  get bytes() {
    return this._bytes.subarray(0, this._at);
  }

  _room(size) {
    if (this._at + size > this._bytes.length) {
      const larger = new Uint8Array(Math.max(2 * this._bytes.length, this._at + size));
      larger.set(this.bytes);
      this._bytes = larger;
      this._view = new DataView(larger.buffer);
    }
    this._at += size;
    return this._at - size;
  }

  byte(value) {
    const at = this._room(1); // which may give it other memory
    this._bytes[at] = value;
  }

  raw(bytes) {
    const at = this._room(bytes.length);
    this._bytes.set(bytes, at);
  }

  _sized(code, bits, size) {
    const at = this._room(1 + bits / 8);
    this._bytes[at] = code;
    if (bits === 8) this._view.setUint8(at + 1, size);
    else if (bits === 16) this._view.setUint16(at + 1, size);
    else this._view.setUint32(at + 1, size);
  }

  number(value) {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) this._whole(value);
    else this.float(value);
  }

  float(value) {
    const at = this._room(9);
    this._bytes[at] = 0xcb;
    this._view.setFloat64(at + 1, value);
  }

  _whole(value) {
    if (value >= 0) {
      if (value < 0x80) this.byte(value);
      else if (value < 0x100) this._sized(0xcc, 8, value);
      else if (value < 0x10000) this._sized(0xcd, 16, value);
      else if (value < 0x100000000) this._sized(0xce, 32, value);
      else this._wide(BigInt(value));
    } else if (value >= -0x20) this.byte(value & 0xff);
    else if (value >= -0x80) this._sized(0xd0, 8, value & 0xff);
    else if (value >= -0x8000) this._sized(0xd1, 16, value & 0xffff);
    else if (value >= -0x80000000) this._sized(0xd2, 32, value >>> 0);
    else this._wide(BigInt(value));
  }

  bigint(value) {
    if (value < LEAST_INT || value > MOST_UINT)
      throw new Unsendable("holds an integer of more than 64 bits");
    const number = Number(value);
    if (Number.isSafeInteger(number)) this._whole(number);
    else this._wide(value);
  }

  _wide(value) {
    const at = this._room(9);
    this._bytes[at] = value < 0n ? 0xd3 : 0xcf;
    if (value < 0n) this._view.setBigInt64(at + 1, value);
    else this._view.setBigUint64(at + 1, value);
  }

  text(value) {
    if (!value.isWellFormed?.() && lonely(value))
      throw new Unsendable("holds text that is not valid Unicode");
    const bytes = UTF8.encode(value);
    const size = bytes.length;
    if (size < 0x20) this.byte(0xa0 | size);
    else if (size < 0x100) this._sized(0xd9, 8, size);
    else if (size < 0x10000) this._sized(0xda, 16, size);
    else this._sized(0xdb, 32, size);
    this.raw(bytes);
  }

  binary(bytes) {
    const size = bytes.length;
    if (size < 0x100) this._sized(0xc4, 8, size);
    else if (size < 0x10000) this._sized(0xc5, 16, size);
    else this._sized(0xc6, 32, size);
    this.raw(bytes);
  }

  array(length) {
    if (length < 0x10) this.byte(0x90 | length);
    else if (length < 0x10000) this._sized(0xdc, 16, length);
    else this._sized(0xdd, 32, length);
  }

  map(length) {
    if (length < 0x10) this.byte(0x80 | length);
    else if (length < 0x10000) this._sized(0xde, 16, length);
    else this._sized(0xdf, 32, length);
  }

  extension(code, data) {
    const size = data.length;
    const fixed = { 1: 0xd4, 2: 0xd5, 4: 0xd6, 8: 0xd7, 16: 0xd8 }[size];
    if (fixed) this.byte(fixed);
    else if (size < 0x100) this._sized(0xc7, 8, size);
    else if (size < 0x10000) this._sized(0xc8, 16, size);
    else this._sized(0xc9, 32, size);
    this.byte(code & 0xff);
    this.raw(data);
  }

  /** Write a value of msgpack's types; `other` writes what is none of them. */
  value(value, other = refuse, depth = 0) {
    if (depth > DEPTH) throw new Unsendable("is nested too deeply");
    if (value === null) this.byte(0xc0);
    else if (value === true || value === false) this.byte(value ? 0xc3 : 0xc2);
    else if (typeof value === "number") this.number(value);
    else if (typeof value === "bigint") this.bigint(value);
    else if (typeof value === "string") this.text(value);
    else if (value instanceof Float) this.float(value.value);
    else if (value instanceof Uint8Array) this.binary(value);
    else if (value instanceof Ext) this.extension(value.code, value.data);
    else if (Array.isArray(value)) {
      this.array(value.length);
      for (const item of value) this.value(item, other, depth + 1);
    } else if (value instanceof Map) {
      this.map(value.size);
      for (const [key, item] of value) {
        this.value(key, refuse, depth + 1);
        this.value(item, other, depth + 1);
      }
    } else other(this, value, depth);
  }
}

function refuse(writer, value) {
  throw new Unsendable(`${kindOf(value)} cannot be sent`);
}

function lonely(text) {
  return /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(
    text,
  );
}

/** Return what a value is called in messages. */
export function kindOf(value) {
  return value?.constructor?.name ?? typeof value;
}

/** Return a value as msgpack. */
export function encode(value) {
  const writer = new Writer();
  writer.value(value);
  return writer.bytes.slice();
}

export class Reader {
  constructor(bytes, extension = unknown) {
    this._bytes = bytes;
    this._view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this._at = 0;
    this._extension = extension;
  }

  get isDone() {
    return this._at === this._bytes.length;
  }

  _take(size) {
    const at = this._at;
    if (size > this._bytes.length - at)
      throw new Malformed(`${size} bytes announced, ${this._bytes.length - at} left`);
    this._at += size;
    return at;
  }

  _bytesOf(size) {
    const at = this._take(size);
    return this._bytes.subarray(at, at + size);
  }

  _size(bits) {
    const at = this._take(bits / 8);
    if (bits === 8) return this._view.getUint8(at);
    return bits === 16 ? this._view.getUint16(at) : this._view.getUint32(at);
  }

  /** Return [kind, content]: a value, or the size of what comes next. */
  _head() {
    const code = this._view.getUint8(this._take(1));
    if (code < 0x80) return ["value", code];
    if (code < 0x90) return ["map", code & 0x0f];
    if (code < 0xa0) return ["array", code & 0x0f];
    if (code < 0xc0) return ["text", code & 0x1f];
    if (code >= 0xe0) return ["value", code - 0x100];
    switch (code) {
      case 0xc0:
        return ["value", null];
      case 0xc2:
        return ["value", false];
      case 0xc3:
        return ["value", true];
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return ["binary", this._size(8 << (code - 0xc4))];
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return ["extension", this._size(8 << (code - 0xc7))];
      case 0xca:
        return ["value", this._view.getFloat32(this._take(4))];
      case 0xcb:
        return ["value", this._view.getFloat64(this._take(8))];
      case 0xcc:
      case 0xcd:
      case 0xce:
        return ["value", this._size(8 << (code - 0xcc))];
      case 0xcf:
        return ["value", narrow(this._view.getBigUint64(this._take(8)))];
      case 0xd0:
        return ["value", this._view.getInt8(this._take(1))];
      case 0xd1:
        return ["value", this._view.getInt16(this._take(2))];
      case 0xd2:
        return ["value", this._view.getInt32(this._take(4))];
      case 0xd3:
        return ["value", narrow(this._view.getBigInt64(this._take(8)))];
      case 0xd4:
      case 0xd5:
      case 0xd6:
      case 0xd7:
      case 0xd8:
        return ["extension", 1 << (code - 0xd4)];
      case 0xd9:
      case 0xda:
      case 0xdb:
        return ["text", this._size(8 << (code - 0xd9))];
      case 0xdc:
      case 0xdd:
        return ["array", this._size(16 << (code - 0xdc))];
      case 0xde:
      case 0xdf:
        return ["map", this._size(16 << (code - 0xde))];
    }
    throw new Malformed(`0x${code.toString(16)} begins no value`);
  }

  value(depth = 0) {
    const [kind, content] = this._head();
    if (kind === "value") return content;
    if (kind === "text") return text(this._bytesOf(content));
    if (kind === "binary") return this._bytesOf(content).slice();
    if (depth >= DEPTH) throw new Malformed("a value is nested too deeply");
    if (kind === "extension") {
      const code = this._view.getInt8(this._take(1));
      return this._extension(code, this._bytesOf(content), depth + 1);
    }
    this._fits(kind === "map" ? 2 * content : content);
    if (kind === "array") {
      const items = [];
      for (let i = 0; i < content; i++) items.push(this.value(depth + 1));
      return items;
    }
    const entries = new Map();
    for (let i = 0; i < content; i++) {
      const key = this.value(depth + 1);
      if (typeof key === "object" && key !== null && !(key instanceof Uint8Array))
        throw new Malformed(`${kindOf(key)} is no key`);
      entries.set(key, this.value(depth + 1));
    }
    return entries;
  }

  _fits(values) {
    if (values > this._bytes.length - this._at)
      throw new Malformed(`${values} values announced in fewer bytes`);
  }

  /** Return the bytes of the next value, which is not decoded. */
  raw() {
    const start = this._at;
    for (let left = 1; left > 0; left--) {
      const [kind, content] = this._head();
      if (kind === "array") left += content;
      else if (kind === "map") left += 2 * content;
      else if (kind === "extension") this._take(content + 1);
      else if (kind !== "value") this._take(content);
      if (left - 1 > this._bytes.length - this._at)
        throw new Malformed("more values announced than bytes are left");
    }
    return this._bytes.subarray(start, this._at);
  }

  /** Return the length of the array that begins here. */
  array() {
    const [kind, length] = this._head();
    if (kind !== "array") throw new Malformed("not an array");
    this._fits(length);
    return length;
  }
}

function narrow(value) {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

function text(bytes) {
  try {
    return TEXT.decode(bytes);
  } catch {
    throw new Malformed("text that is not UTF-8");
  }
}

function unknown(code) {
  throw new Malformed(`unknown extension ${code}`);
}

/** Return the value that msgpack bytes consist of; Malformed if they are not of one. */
export function decode(bytes, extension = unknown, depth = 0) {
  const reader = new Reader(bytes, extension);
  const value = reader.value(depth);
  if (!reader.isDone) throw new Malformed("bytes follow the end of a value");
  return value;
}
