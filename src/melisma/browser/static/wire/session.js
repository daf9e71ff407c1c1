// A session with the orchestrator: values from frames and chunks, pings, its end.

import { Malformed } from "./msgpack.js";
import {
  BATCH,
  CHUNK,
  FRAME_BYTES,
  PROTOCOL,
  UNCOUNTED,
  decodeFrame,
  encodeFrame,
  printable,
  splitBatch,
  splitChunk,
  unwrap,
  wrap,
} from "./frames.js";
import { INLINE_BYTES } from "./values.js";
import { Link, Transfer } from "./link.js";
import { Caller, Dispatcher, ProtocolError, RpcError, TransportError } from "./calls.js";

/** Larger bodies are sent in chunks, as the first buffer of a transfer. */
const BODY_BYTES = 1 << 16;
/** A peer's longer ping interval does not extend the timeout for its silence. */
const LONGEST_PING_S = 60;
export const LIBRARY = "melisma-browser";

export const LIMITS = {
  messageBytes: 1 << 28, // buffers of the peer in transfer at a time
  bodyBytes: 1 << 24, // of a value without its arrays
  calls: 64, // of the peer at a time, and to it
  pingS: 5,
  silenceS: 15,
  stallS: 60,
  graceS: 60,
};

/** Fetched is more than the memory: what the learner says of itself. */
export class ShortOfMemory extends RpcError {
  name = "ShortOfMemory";
}

export class Session {
  constructor({ name, functions, limits = {}, onEnd = () => {} }) {
    this.name = name;
    this.limits = { ...LIMITS, ...limits };
    this.link = new Link();
    this.functions = new Map(); // what the peer exposes; true if idempotent
    this.ended = null; // why the session ended
    this.transport = null;
    this.receivedBytes = this.sentBytes = 0;
    this.caller = new Caller(this);
    this.dispatcher = new Dispatcher(this, functions);
    this._onEnd = onEnd;
    this._transfers = 0;
    this._incoming = new Map();
    this._incomingBytes = 0;
    this._silenceMs = 1000 * this.limits.silenceS;
    this._receivedAt = performance.now();
    this._grace = this._watch = null;
  }

  // Sending

  send(frame) {
    this.link.send(encodeFrame(frame));
  }

  /** Return the frame of a packed value and what follows it. */
  transferOf(fields, { body, buffers }) {
    if (!buffers.length && body.length <= BODY_BYTES)
      return new Transfer(encodeFrame({ ...fields, transfer: 0, sizes: [], body: wrap(body) }));
    const isLarge = body.length > BODY_BYTES;
    const all = isLarge ? [body, ...buffers] : [...buffers];
    const sizes = all.map((buffer) => buffer.length);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (total > this.link.roomBytes)
      throw new TransportError(
        `${total} bytes are more than the ${this.link.roomBytes} that the orchestrator accepts`,
      );
    const id = ++this._transfers;
    const wrapped = wrap(isLarge ? null : body);
    const head = encodeFrame({ ...fields, transfer: id, sizes, body: wrapped });
    if (head.length > FRAME_BYTES)
      throw new TransportError(`${sizes.length} arrays are too many for one frame`);
    return new Transfer(head, id, all);
  }

  hello(resumes) {
    return encodeFrame({
      kind: "Hello",
      protocol: PROTOCOL,
      library: LIBRARY,
      name: this.name,
      session: resumes ? this.link.key : new Uint8Array(0),
      received: resumes ? this.link.received : 0,
      message_bytes: this.limits.messageBytes,
      functions: this.dispatcher.offered(),
      ping_s: this.limits.pingS,
    });
  }

  // Its transports

  /** Go on from the state in the peer's Hello; begin anew if its session is another. */
  greet(hello, resumes) {
    if (hello.protocol[0] !== PROTOCOL[0])
      throw new ProtocolError(
        `the orchestrator speaks version ${hello.protocol[0]} of the protocol,` +
          ` this page ${PROTOCOL[0]}: load it again`,
      );
    if (!resumes || !same(hello.session, this.link.key)) {
      this.caller.restart(this.link);
      this._clear(new Link(hello.session));
      this.ended = null;
    }
    this.functions = hello.functions;
    const pingS = Number(hello.ping_s);
    if (pingS > 0 && pingS < LONGEST_PING_S)
      this._silenceMs = 1000 * Math.max(this.limits.silenceS, 3 * pingS);
    this.link.roomBytes = hello.message_bytes;
    this.link.resume(hello.received);
    this.caller.resend();
  }

  /** Send and receive over a transport, until `detach`. */
  attach(transport) {
    clearTimeout(this._grace);
    this.transport = transport;
    this._receivedAt = performance.now();
    this.link.start({
      send: (bytes) => {
        this.sentBytes += bytes.length;
        transport.send(bytes);
      },
      get bufferedAmount() {
        return transport.bufferedAmount;
      },
    });
    const pingMs = 1000 * this.limits.pingS;
    let due = performance.now() + pingMs;
    this._watch = setInterval(() => {
      const now = performance.now();
      const isOnTime = now - due < pingMs; // else this page was suspended, not the peer
      due = now + pingMs;
      if (isOnTime && now - this._receivedAt > this._silenceMs) lose(transport);
      else if (isOnTime && this.link.stalledMs > 1000 * this.limits.stallS)
        this.end(`the orchestrator took nothing in for ${this.limits.stallS} s`);
      else this.link.acknowledge();
      for (const incoming of this._incoming.values())
        if (!this._ownerOf(incoming.frame).wants(incoming.frame)) incoming.discard();
    }, pingMs);
  }

  detach(transport) {
    if (this.transport !== transport) return;
    this.transport = null;
    clearInterval(this._watch);
    this.link.stop();
    if (this.ended) return;
    const { graceS } = this.limits;
    this._grace = setTimeout(
      () => this.end(`the orchestrator was lost for ${graceS} s`),
      1000 * graceS,
    );
  }

  /** Fail pending calls, cancel running ones, and send the peer a Bye. */
  end(reason) {
    clearTimeout(this._grace);
    const error = reason instanceof Error ? reason : new TransportError(reason);
    this.ended = error;
    this.caller.failAll(error);
    const transport = this.transport;
    this.transport = null;
    clearInterval(this._watch);
    this.link.stop();
    this._clear(new Link());
    if (transport) {
      try {
        transport.send(encodeFrame({ kind: "Bye", reason: error.message.slice(0, 500) }));
      } catch {
        // closing already
      }
      transport.close();
    }
    this._onEnd(error);
  }

  _clear(link) {
    this.dispatcher.dropAll();
    for (const incoming of this._incoming.values()) incoming.discard();
    this._incoming.clear();
    this._incomingBytes = 0;
    this.link.stop();
    this.link = link;
  }

  // Receiving

  /** Take a message in; what breaks the protocol ends the session with a reason. */
  receive(data) {
    this._receivedAt = performance.now();
    this.receivedBytes += data.length;
    try {
      if (data.length > FRAME_BYTES) throw new Malformed(`a message of ${data.length} bytes`);
      if (data[0] === CHUNK) {
        this.link.countReceived(data.length);
        this._onChunk(...splitChunk(data));
      } else if (data[0] === BATCH) {
        for (const frame of splitBatch(data)) {
          if (this.ended) break;
          this._onFrame(frame);
        }
      } else this._onFrame(data);
    } catch (error) {
      if (!(error instanceof Malformed)) throw error;
      this.end(new ProtocolError(`the orchestrator broke the protocol: ${error.message}`));
    }
  }

  _onFrame(data) {
    const frame = decodeFrame(data);
    if (!UNCOUNTED.has(frame.kind)) {
      this.link.countReceived(data.length);
      if (this.link.isOverloaded) throw new Malformed("it requests more than it receives");
    }
    switch (frame.kind) {
      case "Ack":
        return this.link.confirm(frame.received);
      case "Bye":
        return this.end(`the orchestrator ended the session: ${printable(frame.reason)}`);
      case "Call":
      case "Result":
      case "Item":
        return this._onValue(frame);
      case "Abort":
        return this._onAbort(frame);
      case "Cancel":
        return this.dispatcher.onCancel(frame);
      case "Credit":
        return this.dispatcher.onCredit(frame);
      case "Stream":
        return this.caller.onStream(frame);
      case "Fault":
        return this.caller.onFault(frame);
    }
    throw new Malformed(`${frame.kind} after the handshake`);
  }

  _ownerOf(frame) {
    return frame.kind === "Call" ? this.dispatcher : this.caller;
  }

  _onValue(frame) {
    const owner = this._ownerOf(frame);
    let isWanted = owner.admit(frame);
    if (!frame.sizes.length) {
      if (isWanted) owner.deliver(frame, ...valueOf(frame, []));
      return;
    }
    const total = costOf(frame.sizes);
    const room = this.limits.messageBytes - this._incomingBytes;
    if (!frame.sizes.every((size) => size >= 1) || !(total <= room))
      throw new Malformed(`${total} bytes announced, but at most ${room} accepted`);
    if (this._incoming.has(frame.transfer))
      throw new Malformed(`transfer ${frame.transfer} announced twice`);
    const bodyBytes = unwrap(frame.body) === null ? frame.sizes[0] : 0;
    if (isWanted && bodyBytes > this.limits.bodyBytes) {
      owner.refuse(frame, `${bodyBytes} bytes besides arrays are too many`);
      isWanted = false;
    }
    this._incoming.set(frame.transfer, new Incoming(frame, isWanted));
    this._incomingBytes += total;
  }

  _onChunk(transfer, chunk) {
    const incoming = this._incoming.get(transfer);
    if (!incoming)
      throw new Malformed(`a chunk of transfer ${transfer}, which was not announced`);
    try {
      incoming.fill(chunk);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      incoming.discard();
      const text = `${incoming.bytes} bytes are more than the memory of this page`;
      this._ownerOf(incoming.frame).refuse(incoming.frame, text, ShortOfMemory);
    }
    if (incoming.left) return;
    this._forget(transfer);
    const owner = this._ownerOf(incoming.frame);
    if (incoming.isWanted && owner.wants(incoming.frame))
      owner.deliver(incoming.frame, ...valueOf(incoming.frame, incoming.buffers));
  }

  _onAbort(frame) {
    const incoming = this._incoming.get(frame.transfer);
    if (!incoming) return;
    this._forget(frame.transfer);
    incoming.discard();
  }

  _forget(transfer) {
    this._incomingBytes -= costOf(this._incoming.get(transfer).frame.sizes);
    this._incoming.delete(transfer);
  }
}

/** A value that arrives in chunks; if it is not wanted, they are dropped. */
class Incoming {
  constructor(frame, isWanted) {
    this.frame = frame;
    this.isWanted = isWanted;
    this.bytes = this.left = frame.sizes.reduce((sum, size) => sum + size, 0);
    this.buffers = [];
    this._at = [0, 0];
  }

  /** Copy a chunk into the buffers; Malformed if it exceeds them. */
  fill(chunk) {
    this.left -= chunk.length;
    if (this.left < 0) throw new Malformed("a transfer is longer than announced");
    if (!this.isWanted) return;
    if (!this.buffers.length)
      this.buffers = this.frame.sizes.map((size) => new Uint8Array(size));
    let [index, offset] = this._at;
    while (chunk.length) {
      const part = chunk.subarray(0, this.buffers[index].length - offset);
      this.buffers[index].set(part, offset);
      offset += part.length;
      chunk = chunk.subarray(part.length);
      if (offset === this.buffers[index].length) [index, offset] = [index + 1, 0];
    }
    this._at = [index, offset];
  }

  discard() {
    this.isWanted = false;
    this.buffers = [];
  }
}

/** Close a connection that is silent: a dead one takes minutes to say that it closed. */
function lose(transport) {
  transport.close();
  transport.onclose?.();
}

/** Bytes to reserve; buffers that should be inline cost more. */
function costOf(sizes) {
  return sizes.reduce((sum, size) => sum + Math.max(size, INLINE_BYTES), 0);
}

function valueOf(frame, buffers) {
  const body = unwrap(frame.body);
  if (body !== null) return [body, buffers];
  if (!buffers.length) throw new Malformed("a value without a body");
  return [buffers[0], buffers.slice(1)];
}

function same(one, other) {
  return one.length === other.length && one.every((byte, i) => byte === other[i]);
}
