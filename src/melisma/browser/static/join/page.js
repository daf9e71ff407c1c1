// The page of a phone: asks its owner, shows what the learner does, and stops it.

import { Device } from "./device.js";
import { read } from "./files.js";
import { bytes, count, explained, phase, promise, seconds } from "./words.js";

const part = (id) => document.getElementById(id);
const say = (id, text) => part(id).textContent !== text && (part(id).textContent = text);

/** Kept values; private windows may have no storage. */
function keep(storage, key, value) {
  try {
    if (value === undefined) return window[storage].getItem(key);
    if (value === null) window[storage].removeItem(key);
    else window[storage].setItem(key, value);
  } catch {
    // nothing is kept
  }
  return value ?? null;
}

const TOKEN = "melisma-phone-token";
const NAME = "melisma-phone-name";
const PATIENCE_MS = 30_000;
const JOINED = "melisma-phone-joined";

/** Take the token out of the address, where others could read it. */
function adopt() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return keep("sessionStorage", TOKEN) ?? "";
  keep("sessionStorage", TOKEN, token);
  history.replaceState(null, "", location.pathname);
  return token;
}

/** A name that this device had before, or a new one by its kind. */
function usualName() {
  const kinds = [[/iPhone/, "iphone"], [/iPad/, "ipad"], [/Android/, "android"], [/Macintosh/, "mac"], [/CrOS/, "chromebook"]];
  const kind = kinds.find(([pattern]) => pattern.test(navigator.userAgent))?.[1] ?? "browser";
  const [number] = crypto.getRandomValues(new Uint32Array(1));
  return keep("localStorage", NAME) ?? `${kind}-${number.toString(36).slice(0, 4)}`;
}

class Page {
  constructor() {
    this.token = adopt();
    this.about = null;
    this.own = null;
    this.worker = null;
    this.updates = this.samples = 0;
    this.away = this.ended = false;
    this.patientUntil = 0;
    this.device = new Device(() => this.wishes());
    part("name").value = usualName();
    part("charging").checked = keep("localStorage", "melisma-phone-charging") === "1";
    part("metered").checked = keep("localStorage", "melisma-phone-metered") !== "0";
    part("form").addEventListener("submit", (event) => (event.preventDefault(), this.join()));
    part("stop").addEventListener("click", () => this.stop());
    for (const id of ["charging", "metered"]) {
      part(id).addEventListener("change", () => {
        keep("localStorage", `melisma-phone-${id}`, part(id).checked ? "1" : "0");
        this.wishes();
      });
    }
    for (const id of ["files", "folder"]) part(id).addEventListener("change", () => this.choose(part(id)));
    document.addEventListener("visibilitychange", () => this.seen());
    document.addEventListener("freeze", () => this.leave("the browser froze the page"));
    document.addEventListener("resume", () => this.back());
    window.addEventListener("pagehide", () => this.leave("the page was closed"));
    window.addEventListener("pageshow", (event) => event.persisted && this.back());
    window.addEventListener("online", () => this.worker && this.tell({ do: "back" }));
  }

  /** Ask what there is to take part in; joins again after a reload. */
  async start() {
    try {
      const headers = this.token ? { Authorization: `Bearer ${this.token}` } : {};
      const answer = await fetch("join/check", { headers, cache: "no-store" });
      const told = await answer.json().catch(() => null);
      if (!answer.ok) throw new Error(told?.error?.message ?? `the server answered ${answer.status}`);
      this.about = told;
    } catch (error) {
      const lost = error instanceof TypeError; // of fetch: nobody answered
      this.fail(lost ? "the orchestrator cannot be reached: is it running, and this device in its network? Load this page again" : error.message);
      return;
    }
    say("promise", promise(this.about));
    say("link", "ready");
    if (this.about.name) {
      part("name").value = this.about.name;
      part("name").readOnly = true;
    }
    part("own").hidden = !this.about.federated;
    part("join").disabled = this.about.federated;
    part("form").hidden = false;
    if (keep("sessionStorage", JOINED) === "1" && !this.about.federated) {
      this.patientUntil = Date.now() + PATIENCE_MS; // for the connection before the reload
      this.join();
    }
  }

  /** Read the chosen files; they stay here. */
  async choose(input) {
    this.own = null;
    part("join").disabled = true;
    say("files-said", "Reading …");
    try {
      const [fields] = Object.values(this.about.samples);
      this.own = await read([...input.files], fields);
      say("files-said", `${count(this.own.x.shape[0])} samples. They stay on this device.`);
      part("join").disabled = false;
    } catch (error) {
      say("files-said", error.message);
    }
  }

  join() {
    const name = part("name").value.trim();
    if (!/^[\p{L}\p{N}\p{P}\p{S}\p{Zs}]{1,64}$/u.test(name)) {
      this.fail("give a name of 1 to 64 letters or digits", true);
      return;
    }
    part("name").value = name;
    keep("localStorage", NAME, name);
    keep("sessionStorage", JOINED, "1");
    this.updates = this.samples = 0;
    part("error").hidden = true;
    part("form").hidden = true;
    part("work").hidden = false;
    this.state("Connecting");
    this.worker = new Worker(new URL("../learner/worker.js", import.meta.url), { type: "module" });
    this.worker.addEventListener("message", ({ data }) => this.hear(data));
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.end();
      this.fail(`the learner could not start here: ${event.message ?? "its program did not load"}. Load the page again, in a newer browser if that does not help`, true);
    });
    const allowed = this.device.forbidden(this.wanted()) === null;
    const url = new URL("rpc", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const options = { chargingOnly: true, charging: allowed };
    this.allowed = allowed;
    // Copied, not handed over: who stops may join again with the same files.
    this.tell({ do: "join", url: url.href, token: this.token, name, own: this.own, options });
    this.device.awake(true).then(() => this.wishes());
    this.wishes();
  }

  tell(message) {
    this.worker?.postMessage(message);
  }

  wanted() {
    return { charging: part("charging").checked, metered: part("metered").checked };
  }

  /** The device or its owner's wishes changed. */
  wishes() {
    say("device", this.device.words());
    if (!this.worker) return;
    const why = this.device.forbidden(this.wanted());
    if ((why === null) !== this.allowed) {
      this.allowed = why === null;
      this.tell({ do: "charging", value: this.allowed });
    }
    if (why) this.state(why);
  }

  seen() {
    if (document.visibilityState === "visible") return this.back();
    if (this.device.mobile) this.leave("the page is out of sight");
  }

  leave(reason) {
    if (!this.worker || this.away) return;
    this.away = true;
    this.tell({ do: "away", reason });
  }

  back() {
    this.device.awake().then(() => this.wishes());
    if (!this.worker || !this.away) return;
    this.away = false;
    this.tell({ do: "back" });
  }

  hear(told) {
    switch (told.tell) {
      case "state":
        return this.connected(told.state, told.reason ?? "");
      case "cycle":
        return this.cycle(told);
      case "progress":
        part("progress").max = Math.max(1, told.of);
        part("progress").value = told.batches;
        return;
      case "bytes":
        say("received", bytes(told.received));
        return say("sent", bytes(told.sent));
      case "engine":
      case "speed":
        return this.speed(told);
      case "error":
        return this.warn(`${told.name}: ${told.message}`);
      case "done":
        this.end();
        return told.reason && told.reason !== "stopped" && this.fail(told.reason, true);
    }
  }

  connected(state, reason) {
    const words = { connecting: "connecting", connected: "connected", lost: "no connection", refused: "refused", ended: "ended" };
    say("link", words[state] ?? state);
    part("link").className = `link ${state === "connected" ? "live" : state}`;
    if (state === "connected") this.state("Waiting for work");
    if (state === "connected" || state === "ended") this.ended = state === "ended";
    if (state === "lost" && /choose another name|cannot use it/.test(reason) && Date.now() > this.patientUntil) {
      this.end();
      this.fail(reason, true);
      return;
    }
    if (state === "lost" && !this.ended) this.state("The connection was lost, trying again. Nothing that was done is lost");
    if (state === "ended") this.state("The training is over, or the orchestrator stopped. Thank you");
    if (state === "refused") {
      this.end();
      this.fail(reason || "the orchestrator refused this device", true);
    }
  }

  cycle(told) {
    if (told.backend) this.speed(told);
    if (told.cycle) {
      say("cycle", count(told.cycle));
      if (told.samples) say("share", `${count(told.samples)}${told.steps > 1 ? ` × ${told.steps}` : ""}`);
      if (told.deadlineS) say("deadline", seconds(told.deadlineS));
    }
    if (told.phase === "training") part("progress").value = 0;
    if (told.phase === "done" && told.trained) {
      this.updates += 1;
      this.samples += told.trained;
      say("updates", count(this.updates));
      say("samples", count(this.samples));
    }
    if (this.allowed || told.phase === "done") this.state(phase(told));
    part("error").hidden = true;
  }

  speed({ samplesPerS, backend }) {
    this.backend = backend ?? this.backend;
    this.rate = samplesPerS ?? this.rate;
    const rate = this.rate ? `${count(this.rate)} samples/s` : "";
    say("speed", [rate, this.backend].filter(Boolean).join(", ") || "–");
  }

  state(text) {
    say("state", text);
  }

  warn(text) {
    say("error", explained(text));
    part("error").hidden = false;
  }

  /** Say what went wrong; with `again`, the form is there to try once more. */
  fail(text, again = false) {
    this.warn(text);
    part("form").hidden = !again;
    if (!again) say("link", "refused");
  }

  stop() {
    keep("sessionStorage", JOINED, null);
    if (!this.worker) return;
    this.state("Stopping");
    this.tell({ do: "stop" });
    this.ending = setTimeout(() => this.end(), 3000); // a worker that hangs is ended
  }

  /** Nothing runs any more: show the form again. */
  end() {
    clearTimeout(this.ending);
    this.worker?.terminate();
    this.worker = null;
    this.away = false;
    keep("sessionStorage", JOINED, null);
    this.device.awake(false).then(() => this.wishes());
    part("work").hidden = true;
    part("form").hidden = false;
    say("link", "left");
    part("link").className = "link";
  }
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** Light or dark: as chosen here, or as the system is. */
function shade() {
  document.documentElement.dataset.theme = keep("localStorage", "melisma-theme") ?? (dark.matches ? "dark" : "light");
}

part("theme").addEventListener("click", () => {
  keep("localStorage", "melisma-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  shade();
});
dark.addEventListener("change", shade);
shade();
new Page().start();
