// The client of melisma's remote calls: connects, reconnects with backoff, calls both ways.
//
//   const connection = await connect({ url, token, name, functions, onState });
//   await connection.call("parameters", ["task", 3], {}, { withinS: 30 });
//
// `functions` is {name: {idempotent, call: async (args, kwargs, request) => value}};
// `request.cancelled` and `request.signal` tell that nobody waits for the answer.

import { AccessError, ProtocolError, RpcError, TransportError } from "./calls.js";
import { decodeFrame, printable } from "./frames.js";
import { Malformed } from "./msgpack.js";
import { Session } from "./session.js";

export * from "./calls.js";
export { ShortOfMemory } from "./session.js";
export * from "./values.js";

const FIRST_BACKOFF_MS = 100;
const LONGEST_BACKOFF_MS = 15_000;
/** While something else answers in the orchestrator's place. */
const LONGEST_UNVERIFIED_MS = 300_000;
const CONNECT_MS = 10_000;
const HANDSHAKE_MS = 10_000;

/** Something else than a melisma server answers. */
class Foreign extends TransportError {
  name = "Foreign";
}

/** Return the address of the wire on a server, from any address of it. */
export function wireOf(url) {
  const wire = new URL(url);
  wire.protocol = { "http:": "ws:", "https:": "wss:" }[wire.protocol] ?? wire.protocol;
  if (!["ws:", "wss:"].includes(wire.protocol))
    throw new TypeError(`${wire.protocol} is no protocol of the wire`);
  wire.pathname = "/rpc";
  wire.search = wire.hash = "";
  return wire.href;
}

/** Connect, and stay connected until `close` or until the orchestrator refuses. */
export async function connect(options) {
  const connection = new Connection(options);
  options.onMade?.(connection); // calls come before the first one is answered
  await connection._open();
  return connection;
}

export class Connection {
  constructor({ url, token = "", name, functions = {}, onState = () => {}, limits }) {
    this._url = wireOf(url);
    this._token = token;
    this._onState = onState;
    this._resumes = this._wasIn = this._isClosed = false;
    this._wake = () => {};
    this.session = new Session({
      name,
      functions,
      limits,
      onEnd: (error) => {
        if (!this._isClosed) this._tell("ended", error.message);
      },
    });
  }

  /** Call a function of the orchestrator. */
  call(name, args = [], kwargs = {}, options = {}) {
    return this.session.caller.start(name, args, kwargs, options);
  }

  get functions() {
    return this.session.functions;
  }

  get receivedBytes() {
    return this.session.receivedBytes;
  }

  get sentBytes() {
    return this.session.sentBytes;
  }

  /** End the session and stop reconnecting. */
  close(reason = "the page was closed") {
    this._isClosed = true;
    if (!this.session.ended) this.session.end(reason);
    this._wake();
  }

  /** Try again at once: the network may be back, or the page is seen again. */
  hurry() {
    this._wake();
  }

  _tell(state, reason = "") {
    this._onState({ state, reason });
  }

  async _open() {
    this._tell("connecting");
    let connected;
    try {
      connected = await this._connect();
    } catch (error) {
      if (error instanceof AccessError) this._tell("refused", error.message);
      throw error;
    }
    this._stay(connected);
  }

  /** Keep connected; `closed` of what `_connect` returns resolves when that ends. */
  async _stay(connected) {
    let backoffMs = FIRST_BACKOFF_MS;
    while (!this._isClosed) {
      let longestMs = LONGEST_BACKOFF_MS;
      try {
        connected ??= await this._connect();
        backoffMs = FIRST_BACKOFF_MS;
        await connected.closed;
        this._resumes = this.session.ended === null;
        if (this._resumes) this._tell("lost", "the connection was lost");
      } catch (error) {
        if (error instanceof AccessError) {
          this._isClosed = true;
          this.session.end(error);
          this._tell("refused", error.message);
          return;
        }
        if (error instanceof Foreign || error instanceof ProtocolError)
          longestMs = LONGEST_UNVERIFIED_MS;
        else if (!(error instanceof RpcError)) throw error;
        this._tell("lost", error.message);
      }
      connected = null;
      if (this._isClosed) return;
      await this._pause(Math.min(backoffMs, longestMs) * (0.5 + 0.5 * Math.random()));
      backoffMs = Math.min(longestMs, 2 * backoffMs);
    }
  }

  _pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this._wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Connect and shake hands once. */
  async _connect() {
    const socket = await this._dial();
    const session = this.session;
    const resumes = this._resumes && session.ended === null;
    const inbox = [];
    let take = (data) => inbox.push(data);
    let end;
    const closed = new Promise((resolve) => {
      end = resolve;
    });
    socket.onmessage = ({ data }) => take(data);
    socket.onclose = () => {
      take(null);
      session.detach(socket);
      end();
    };
    try {
      socket.send(session.hello(resumes));
      const first = await this._first(inbox, (receive) => {
        take = receive;
      });
      const reply = decodeFrame(first);
      if (reply.kind === "Refused") {
        const Kind = reply.permanent ? AccessError : TransportError;
        throw new Kind(`the orchestrator refused: ${printable(reply.reason)}`);
      }
      if (reply.kind !== "Hello") throw new Malformed("the first frame is not Hello");
      session.greet(reply, resumes);
    } catch (error) {
      socket.close();
      if (error instanceof Malformed)
        throw new Foreign(`the handshake failed: ${error.message}`);
      throw error;
    }
    this._resumes = this._wasIn = true;
    session.attach(socket);
    take = (data) => {
      if (data instanceof ArrayBuffer && session.transport === socket)
        session.receive(new Uint8Array(data));
      else if (data !== null) socket.close();
    };
    inbox.forEach(take);
    this._tell("connected");
    if (socket.readyState !== WebSocket.OPEN) socket.onclose();
    return { closed };
  }

  _first(inbox, onTake) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new TransportError("the handshake failed: no reply in time")),
        HANDSHAKE_MS,
      );
      onTake((data) => {
        clearTimeout(timer);
        onTake((later) => inbox.push(later));
        if (data instanceof ArrayBuffer) resolve(new Uint8Array(data));
        else reject(new TransportError("the connection closed during the handshake"));
      });
    });
  }

  /** Open a WebSocket; the token travels as a subprotocol: there are no headers. */
  async _dial() {
    const protocols = ["melisma"];
    if (this._token) protocols.push(`melisma.token.${this._token}`);
    const socket = new WebSocket(this._url, protocols);
    socket.binaryType = "arraybuffer";
    const isOpen = await new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), CONNECT_MS);
      socket.onopen = () => resolve(true);
      socket.onerror = socket.onclose = () => resolve(false);
      socket.addEventListener("open", () => clearTimeout(timer));
    });
    socket.onerror = null;
    if (isOpen) return socket;
    socket.onclose = null;
    socket.close();
    throw await this._whyNot();
  }

  /** Browsers hide why a WebSocket was refused: ask by HTTP. */
  async _whyNot() {
    const address = this._url.replace(/^ws/, "http");
    const headers = this._token ? { Authorization: `Bearer ${this._token}` } : {};
    let status;
    try {
      const signal = AbortSignal.timeout(CONNECT_MS);
      ({ status } = await fetch(address, { headers, signal, redirect: "manual" }));
    } catch {
      return new TransportError(`nobody answers at ${address}`);
    }
    if (status === 401 || status === 403) {
      const text = "the orchestrator does not accept this link's token: ask for a new link";
      // Without TLS anybody may have said so to a page that was let in before.
      const isSure = address.startsWith("https:") || !this._wasIn;
      return isSure ? new AccessError(text) : new Foreign(text);
    }
    if (status === 503) return new TransportError("the orchestrator accepts no more connections");
    if (status === 400) return new TransportError("the connection was closed at once");
    return new Foreign(`${address} answers ${status}: not a melisma server`);
  }
}
