// Calls both ways over a session: answers are matched to calls by id, incoming calls run
// the functions that this side exposes.

import { Malformed, pack, unpack } from "./values.js";

export class RpcError extends Error {
  name = "RpcError";
}
/** The message did not arrive, or nobody knows whether it did. */
export class TransportError extends RpcError {
  name = "TransportError";
}
/** The token or the call was refused. */
export class AccessError extends RpcError {
  name = "AccessError";
}
/** No answer within the time that the caller gave. */
export class CallTimeout extends RpcError {
  name = "CallTimeout";
}
/** An answer that breaks the protocol. */
export class ProtocolError extends RpcError {
  name = "ProtocolError";
}
/** It arrived, and the far side raised: `type` is the name of what. */
export class RemoteError extends RpcError {
  name = "RemoteError";
  constructor(type, message, traceback) {
    super(`${type}: ${message}`);
    this.type = type;
    this.said = message;
    this.traceback = traceback;
  }
}
/** The caller cancelled or timed out, or this side gave up. */
export class Cancelled extends Error {
  name = "CancelledError";
}

/** Longer error messages are truncated. */
const TEXT_CHARACTERS = 20_000;
/** A timer's longest time; what is longer never ends here. */
const TIMER_MS = 2 ** 31 - 1;

/** The calls of this side that wait for answers. */
export class Caller {
  constructor(session) {
    this._session = session;
    this._pending = new Map();
    this._ids = 0;
    this._toResend = [];
  }

  start(name, args, kwargs, { withinS = null, signal = null } = {}) {
    const session = this._session;
    return new Promise((resolve, reject) => {
      if (session.ended) return reject(session.ended);
      if (signal?.aborted) return reject(new Cancelled(`${name} was cancelled`));
      if (this._pending.size >= session.limits.calls)
        return reject(new TransportError(`${session.limits.calls} calls are pending`));
      let packed;
      try {
        packed = pack([args, new Map(Object.entries(kwargs))]);
      } catch (error) {
        return reject(error);
      }
      const id = ++this._ids;
      const call = { id, name, withinS, packed, resolve, reject, transfer: null };
      this._pending.set(id, call);
      if (withinS !== null && withinS * 1000 < TIMER_MS)
        call.timer = setTimeout(() => this._timeOut(call), withinS * 1000);
      if (signal) {
        call.signal = signal;
        call.onAbort = () => this._abandon(call, new Cancelled(`${name} was cancelled`));
        signal.addEventListener("abort", call.onAbort, { once: true });
      }
      this._send(call);
    });
  }

  _send(call) {
    const { id, name, withinS, packed } = call;
    const fields = { kind: "Call", id, function: name, within_s: withinS };
    try {
      call.transfer = this._session.transferOf(fields, packed);
    } catch (error) {
      this._fail(call, error);
      return;
    }
    this._session.link.sendTransfer(call.transfer);
  }

  _timeOut(call) {
    const text = `${call.name}: no answer within ${call.withinS} s`;
    this._abandon(call, new CallTimeout(text));
  }

  _abandon(call, error) {
    if (this._pending.get(call.id) !== call) return;
    this._fail(call, error);
    if (call.transfer && this._session.link.cancel(call.transfer))
      this._session.send({ kind: "Cancel", id: call.id });
  }

  _fail(call, error) {
    this._remove(call);
    call.reject(error);
  }

  _remove(call) {
    this._pending.delete(call.id);
    clearTimeout(call.timer);
    call.signal?.removeEventListener("abort", call.onAbort);
  }

  failAll(error) {
    for (const call of [...this._pending.values()]) this._fail(call, error);
  }

  /** Fail the calls that may have run on a peer that restarted; keep the others. */
  restart(link) {
    for (const call of [...this._pending.values()]) {
      const isUnsent = call.transfer && link.isUnsent(call.transfer);
      if (!isUnsent && !this._session.functions.get(call.name))
        this._fail(
          call,
          new TransportError(
            `the orchestrator restarted during a call of ${call.name}:` +
              " it may or may not have run",
          ),
        );
    }
    this._toResend = [...this._pending.values()];
  }

  /** Send the calls that `restart` kept, in the new session. */
  resend() {
    for (const call of this._toResend)
      if (this._pending.get(call.id) === call) this._send(call);
    this._toResend = [];
  }

  admit(frame) {
    return this._pending.has(frame.id);
  }

  wants(frame) {
    return this._pending.has(frame.id);
  }

  refuse(frame, message, Kind = TransportError) {
    const call = this._pending.get(frame.id);
    if (call) this._abandon(call, new Kind(`${call.name}: ${message}`));
  }

  deliver(frame, body, buffers) {
    const call = this._pending.get(frame.id);
    if (frame.kind === "Item") return; // of a stream, which was refused
    let value;
    try {
      value = unpack(body, buffers);
    } catch (error) {
      const text = `the answer of ${call.name} cannot be decoded: ${error.message}`;
      this._abandon(call, new ProtocolError(text));
      return;
    }
    this._remove(call);
    call.resolve(value);
  }

  onStream(frame) {
    this.refuse(frame, "answers with a stream, which a browser does not take");
  }

  onFault(frame) {
    const call = this._pending.get(frame.id);
    if (!call) return;
    const { error, message, traceback, refused } = frame;
    this._fail(
      call,
      refused ? new AccessError(message) : new RemoteError(error, message, traceback),
    );
  }
}

/** An incoming call: whether it is still waited for, and how to hear that it is not. */
class Request {
  constructor(frame) {
    this.id = frame.id;
    this.name = frame.function;
    this._abort = new AbortController();
  }

  get cancelled() {
    return this._abort.signal.aborted;
  }

  get signal() {
    return this._abort.signal;
  }

  cancel() {
    this._abort.abort();
  }
}

/** Runs the peer's calls of `functions`, and sends back results and faults. */
export class Dispatcher {
  constructor(session, functions) {
    this._session = session;
    this._functions = new Map(Object.entries(functions));
    this._active = new Map();
    this._sending = new Map(); // results whose buffers are being sent
  }

  offered() {
    return new Map([...this._functions].map(([name, f]) => [name, Boolean(f.idempotent)]));
  }

  admit(frame) {
    if (this._active.has(frame.id)) throw new Malformed(`two calls with id ${frame.id}`);
    if (Number.isNaN(Number(frame.within_s)))
      throw new Malformed("the time limit is not a number");
    const { calls } = this._session.limits;
    if (!this._functions.has(frame.function))
      this._fault(frame.id, "UnknownFunction", `there is no ${frame.function.slice(0, 200)}`);
    else if (this._active.size + this._sending.size >= calls)
      this._fault(frame.id, "Busy", `${calls} calls are running already`);
    else {
      const request = new Request(frame);
      this._active.set(frame.id, request);
      const ms = frame.within_s === null ? Infinity : Number(frame.within_s) * 1000;
      if (ms < TIMER_MS)
        request.timer = setTimeout(() => this._drop(request), Math.max(0, ms));
      return true;
    }
    return false;
  }

  wants(frame) {
    return this._active.has(frame.id);
  }

  refuse(frame, message) {
    const request = this._active.get(frame.id);
    if (request) this._fail(request, "TooLarge", message);
  }

  deliver(frame, body, buffers) {
    const request = this._active.get(frame.id);
    let args, kwargs;
    try {
      const value = unpack(body, buffers);
      if (!Array.isArray(value) || value.length !== 2 || !Array.isArray(value[0]))
        throw new Malformed("arguments are a list and a dictionary");
      [args, kwargs] = value;
      if (!(kwargs instanceof Map)) throw new Malformed("arguments by name are a dictionary");
    } catch (error) {
      this._fail(request, error.name, error.message);
      return;
    }
    this._run(request, args, kwargs);
  }

  async _run(request, args, kwargs) {
    let packed;
    try {
      const { call } = this._functions.get(request.name);
      packed = pack((await call(args, kwargs, request)) ?? null);
      if (this._active.get(request.id) !== request) return; // cancelled or timed out
      this._send(request, packed);
    } catch (error) {
      if (this._active.get(request.id) !== request) return;
      this._fail(request, error.name ?? "Error", String(error.message ?? error));
    }
  }

  _send(request, packed) {
    const link = this._session.link;
    const transfer = this._session.transferOf({ kind: "Result", id: request.id }, packed);
    if (transfer.bytes) {
      this._sending.set(request.id, transfer);
      transfer.onSent = () => this._sending.delete(request.id);
    }
    this._forget(request);
    link.sendTransfer(transfer);
  }

  onCancel(frame) {
    if (this._active.has(frame.id)) this._drop(this._active.get(frame.id));
    else if (this._sending.has(frame.id))
      this._session.link.cancel(this._sending.get(frame.id));
  }

  onCredit() {} // nothing here answers with a stream

  dropAll() {
    for (const request of [...this._active.values()]) this._drop(request);
    this._sending.clear();
  }

  _drop(request) {
    this._forget(request);
    request.cancel();
  }

  _forget(request) {
    this._active.delete(request.id);
    clearTimeout(request.timer);
  }

  _fail(request, error, message) {
    this._forget(request);
    this._fault(request.id, error, message);
  }

  _fault(id, error, message) {
    const cut = message.slice(0, TEXT_CHARACTERS).toWellFormed?.() ?? message;
    this._session.send({ kind: "Fault", id, refused: false, error, message: cut, traceback: "" });
  }
}
