// The learner in its Web Worker: what the page asks of it, and what the page is told.

import { connect } from "../wire/wire.js";
import { Learner } from "./learner.js";

const BYTES_MS = 1000;

let joined = null;

const tell = (message) => self.postMessage(message);

function fail(error) {
  tell({ tell: "error", name: error?.name ?? "Error", message: String(error?.message ?? error) });
}

/** A learner that is connected, or will be again. */
class Joined {
  constructor({ name, options = {} }) {
    this._name = name;
    this._options = options;
    this._isHidden = false;
    this._isCharging = options.charging ?? true;
    this._reason = ""; // why it is away, as the orchestrator knows it
    this._bytes = 0;
    this.connection = this.learner = null;
  }

  async start({ url, token, own }) {
    const { backend, cacheBytes, engine = "../engine/engine.js" } = this._options;
    const { openEngine } = await import(new URL(engine, import.meta.url).href);
    const made = await openEngine({ backend });
    tell({ tell: "engine", backend: made.backend });
    this.learner = new Learner({ name: this._name, engine: made, own, cacheBytes, tell });
    this._changed(); // it may be on battery already
    const functions = this.learner.functions();
    for (const exposed of Object.values(functions)) exposed.call = watched(exposed.call);
    while (!this._isStopped) {
      try {
        const onState = (state) => this._onState(state);
        const options = { url, token, name: this._name, functions, onState };
        this.connection = await connect({ ...options, onMade: (c) => this._have(c) });
        return;
      } catch (error) {
        if (error.name === "AccessError") return this.stop(error.message);
        if (!["TransportError", "Foreign"].includes(error.name)) throw error;
        tell({ tell: "state", state: "lost", reason: error.message });
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
  }

  _have(connection) {
    this.connection = this.learner.orchestrator = connection;
    this._timer ??= setInterval(() => this._tellBytes(), BYTES_MS);
  }

  _onState({ state, reason }) {
    tell({ tell: "state", state, reason });
    if (state === "connected") this._tellAway();
    if (state === "refused") this.stop(reason);
  }

  _tellBytes() {
    const { receivedBytes: received, sentBytes: sent } = this.connection;
    if (received + sent === this._bytes) return;
    this._bytes = received + sent;
    tell({ tell: "bytes", received, sent });
  }

  away(reason) {
    this._isHidden = String(reason || "hidden").slice(0, 200);
    this._changed();
  }

  back() {
    this._isHidden = false;
    this.connection?.hurry();
    this._changed();
  }

  charging(value) {
    this._isCharging = Boolean(value);
    this._changed();
  }

  _changed() {
    const isOnBattery = this._options.chargingOnly && !this._isCharging;
    this.learner && (this.learner.isPaused = Boolean(isOnBattery));
    const reason = this._isHidden || (isOnBattery ? "on battery" : "");
    if (reason === this._reason) return;
    this._reason = reason;
    this._tellAway();
  }

  /** Tell the orchestrator why this learner is away, or that it is back. */
  _tellAway() {
    const { connection, _reason: reason } = this;
    if (!connection || connection.session.ended || !connection.functions.has("back")) return;
    const told = reason ? connection.call("away", [reason]) : connection.call("back");
    told.catch(fail);
  }

  stop(reason = "stopped") {
    if (this._isStopped) return;
    this._isStopped = true;
    clearInterval(this._timer);
    this.connection?.close(reason);
    this.learner?.close();
    tell({ tell: "done", reason });
  }
}

/** Tell the page of what fails; the orchestrator is told by the wire. */
function watched(call) {
  return async (args, kwargs, request) => {
    try {
      return await call(args, kwargs, request);
    } catch (error) {
      if (!request.cancelled) fail(error);
      throw error;
    }
  };
}

self.onmessage = async ({ data }) => {
  try {
    if (data.do === "join") {
      if (joined) throw new TypeError("this worker has joined already");
      joined = new Joined(data);
      await joined.start(data);
    } else if (data.do === "stop") joined?.stop();
    else if (data.do === "away") joined?.away(data.reason);
    else if (data.do === "back") joined?.back();
    else if (data.do === "charging") joined?.charging(data.value);
    else throw new TypeError(`the page asked for ${data.do}`);
  } catch (error) {
    fail(error);
    if (data.do === "join" && !joined?.connection) joined?.stop(error.message);
  }
};
