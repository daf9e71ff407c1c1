// Delivery of frames exactly once and in order, over WebSockets that may break, as
// melisma.rpc.link has it: both ends count, and keep what the other has not confirmed.
// Small frames go first, and transfers take turns chunk by chunk.

import { Malformed } from "./msgpack.js";
import { BATCH_BYTES, CHUNK_BYTES, batch, chunkOf, encodeFrame } from "./frames.js";

/** No chunks are sent while more bytes than this are unconfirmed. */
const WINDOW_BYTES = 64 << 20;
/** A peer with more than this unconfirmed or queued is overloaded. */
const BACKLOG_BYTES = 4 * WINDOW_BYTES;
const BACKLOG_FRAMES = 1 << 15;
/** Received since the last Ack, above which the next one is due. */
const ACK_BYTES = 16 << 20;
const ACK_FRAMES = 256;
/** Chunks wait while the browser holds more than this: what it holds nothing overtakes. */
const BUFFERED_BYTES = 1 << 18;
const LOOK_MS = 4;

/** A frame to send, and the buffers that follow it in chunks, if any. */
export class Transfer {
  constructor(head, id = 0, buffers = []) {
    this.head = head;
    this.id = id;
    this.bytes = this.left = buffers.reduce((sum, buffer) => sum + buffer.length, 0);
    this._buffers = buffers;
    this._at = 0;
    this.onSent = null; // called when all is sent or cancelled
  }

  /** Return the next chunk, as what is kept until it is confirmed. */
  chunk() {
    const buffer = this._buffers[0];
    const part = buffer.subarray(this._at, this._at + CHUNK_BYTES);
    this._at += part.length;
    this.left -= part.length;
    if (this._at === buffer.length) {
      this._buffers.shift();
      this._at = 0;
    }
    return { transfer: this.id, part };
  }

  sent() {
    this.onSent?.();
    this.onSent = null;
  }
}

export class Link {
  constructor(key = new Uint8Array(0)) {
    this.key = key; // of the session
    this.received = 0; // frames of the session
    this.roomBytes = 0; // limit of the peer on buffers in transfer
    this._confirmed = 0; // frames that the peer has received
    this._confirmedAt = performance.now();
    this._unconfirmed = [];
    this._unconfirmedBytes = 0;
    this._resend = []; // of these, over this transport
    this._outbox = []; // small frames, sent first
    this._outboxBytes = 0;
    this._queued = []; // transfers that are not announced yet
    this._sending = []; // announced, taking turns
    this._announcedBytes = 0;
    this._ackDue = false;
    this._unackedBytes = this._unackedFrames = 0;
    this._transport = null;
    this._scheduled = false;
    this._timer = null;
  }

  /** Send a small frame, batched with others of this turn of the event loop. */
  send(frame) {
    this._outbox.push(frame);
    this._outboxBytes += frame.length;
    this._wake();
  }

  /** Queue a transfer, whose buffers must fit in `roomBytes`. */
  sendTransfer(transfer) {
    if (!transfer.bytes) {
      this.send(transfer.head);
      transfer.sent();
      return;
    }
    this._queued.push(transfer);
    this._wake();
  }

  /** Send no more of a transfer; return whether the peer may have part of it. */
  cancel(transfer) {
    if (removed(this._queued, transfer)) {
      transfer.sent();
      return false;
    }
    if (removed(this._outbox, transfer.head)) {
      this._outboxBytes -= transfer.head.length;
      return false;
    }
    if (removed(this._sending, transfer)) {
      this._announcedBytes -= transfer.bytes;
      this.send(encodeFrame({ kind: "Abort", transfer: transfer.id }));
    }
    transfer.sent();
    return true;
  }

  /** Return whether the peer cannot have a transfer's head. */
  isUnsent(transfer) {
    return this._queued.includes(transfer) || this._outbox.includes(transfer.head);
  }

  /** Go on over a new transport to a peer that has `received` frames. */
  resume(received) {
    if (received < this._confirmed)
      throw new Malformed(`${received} frames confirmed, and ${this._confirmed} before`);
    this.confirm(received);
    this._resend = [...this._unconfirmed];
    this._transport = null;
  }

  /** Drop the frames that the peer has received. */
  confirm(received) {
    const frames = received - this._confirmed;
    if (frames > this._unconfirmed.length)
      throw new Malformed(`${received} frames confirmed that were never sent`);
    if (frames <= 0) return;
    this._confirmedAt = performance.now();
    for (const frame of this._unconfirmed.splice(0, frames))
      this._unconfirmedBytes -= sizeOf(frame);
    this._confirmed = received;
    this._wake();
  }

  /** Count a frame of the session, and send an Ack if one is due. */
  countReceived(size) {
    this.received += 1;
    this._unackedFrames += 1;
    this._unackedBytes += size;
    if (this._unackedBytes >= ACK_BYTES || this._unackedFrames >= ACK_FRAMES)
      this.acknowledge();
  }

  /** Send an Ack, which is also a ping. */
  acknowledge() {
    this._unackedBytes = this._unackedFrames = 0;
    this._ackDue = true;
    this._wake();
  }

  /** Return whether the peer requests far more than it receives. */
  get isOverloaded() {
    return (
      this._unconfirmed.length + this._outbox.length > BACKLOG_FRAMES ||
      this._unconfirmedBytes + this._outboxBytes > BACKLOG_BYTES
    );
  }

  /** Milliseconds for which the peer has not confirmed what it was sent. */
  get stalledMs() {
    return this._unconfirmed.length ? performance.now() - this._confirmedAt : 0;
  }

  /** Send over `transport`, `{send(bytes), bufferedAmount}`, until the next one. */
  start(transport) {
    this._transport = transport;
    this._confirmedAt = performance.now();
    this._wake();
  }

  stop() {
    this._transport = null;
    clearTimeout(this._timer);
    this._timer = null;
  }

  _wake() {
    if (this._scheduled || !this._transport) return;
    this._scheduled = true;
    queueMicrotask(() => {
      this._scheduled = false;
      if (this._transport) this._pump(this._transport);
    });
  }

  _pump(transport) {
    clearTimeout(this._timer);
    this._timer = null;
    if (this._ackDue) {
      this._ackDue = false;
      transport.send(encodeFrame({ kind: "Ack", received: this.received }));
    }
    while (this._transport === transport) {
      const isFull = transport.bufferedAmount > BUFFERED_BYTES;
      if (this._resend.length) {
        if (isFull) break;
        transport.send(joined(this._resend.shift()));
      } else if (this._outbox.length) transport.send(this._batch());
      else {
        if (isFull) break;
        const chunk = this._nextChunk();
        if (!chunk) return;
        this._track(chunk);
        transport.send(joined(chunk));
      }
    }
    this._timer = setTimeout(() => this._wake(), LOOK_MS);
  }

  /** Take queued small frames, up to BATCH_BYTES, as one message. */
  _batch() {
    const frames = [];
    let size = 0;
    while (this._outbox.length && size < BATCH_BYTES) {
      const frame = this._outbox.shift();
      this._outboxBytes -= frame.length;
      this._track(frame);
      frames.push(frame);
      size += frame.length + 4;
    }
    return frames.length === 1 ? frames[0] : batch(frames);
  }

  _nextChunk() {
    if (this._unconfirmedBytes >= WINDOW_BYTES) return null;
    const room = this.roomBytes - this._announcedBytes;
    if (this._queued.length && this._queued[0].bytes <= room) {
      const transfer = this._queued.shift();
      this._sending.push(transfer);
      this._announcedBytes += transfer.bytes;
      return transfer.head;
    }
    const transfer = this._sending.shift();
    if (!transfer) return null;
    const chunk = transfer.chunk();
    if (transfer.left) this._sending.push(transfer);
    else {
      this._announcedBytes -= transfer.bytes;
      transfer.sent();
    }
    return chunk;
  }

  _track(frame) {
    if (!this._unconfirmed.length) this._confirmedAt = performance.now();
    this._unconfirmed.push(frame);
    this._unconfirmedBytes += sizeOf(frame);
  }
}

function removed(list, item) {
  const at = list.indexOf(item);
  if (at >= 0) list.splice(at, 1);
  return at >= 0;
}

function sizeOf(frame) {
  return frame instanceof Uint8Array ? frame.length : frame.part.length;
}

function joined(frame) {
  return frame instanceof Uint8Array ? frame : chunkOf(frame.transfer, frame.part);
}
