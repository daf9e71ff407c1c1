// What the page says: states, numbers and errors as sentences.

/** Bytes as people read them. */
export function bytes(n) {
  if (n < 1e6) return `${Math.round(n / 1e3)} kB`;
  return n < 1e9 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(2)} GB`;
}

export const count = (n) => Math.round(n).toLocaleString("en");

/** Seconds, short. */
export const seconds = (s) => (s < 10 ? `${s.toFixed(1)} s` : s < 120 ? `${Math.round(s)} s` : `${Math.round(s / 60)} min`);

/** What leaves the device, in a sentence or two. */
export function promise(about) {
  const task = `You take part in “${about.job}”. `;
  const speed = about.private ? " How fast your device is stays on it, too." : "";
  if (about.federated) {
    return (
      task +
      "Your data never leaves this device: the model comes here, is trained on the files that you choose, and " +
      "only the changed model goes back." +
      speed
    );
  }
  return (
    task +
    "Training data and the model come to this device, and the changed model goes back with times of the work. " +
    "Nothing else of yours is read or sent." +
    speed
  );
}

const PHASES = {
  preparing: "Getting ready",
  benchmarking: "Measuring how fast this device is",
  fetching: "Downloading the model",
  training: "Training",
  sending: "Sending what was learned",
  done: "Sent. Waiting for the next cycle",
  cancelled: "Stopped by the orchestrator. Waiting for the next cycle",
  failed: "This cycle did not work. Waiting for the next one",
};

/** A phase of a cycle, as a state. */
export function phase(told) {
  if (told.phase === "done" && told.halted) return "Halted at the deadline, and sent. Waiting for the next cycle";
  return PHASES[told.phase] ?? told.phase;
}

const HINTS = [
  [/is taken|is connected already|has a token of its own/, "Another device has this name: choose another one, and join again."],
  [/token expired|token is not valid|token is needed|accept this token/, "This link is no longer valid. Ask for a new one: `melisma serve` prints it."],
  [/may not train|may not call/, "This link is not for phones. Ask for the link that `melisma serve` prints for phones."],
  [/was expelled/, "The orchestrator does not accept this device any more."],
  [/ShortOfMemory|memory/, "This device has not enough memory for its share. Close other apps and tabs, and join again."],
];

/** An error as sentences: what happened, then what to do. */
export function explained(text) {
  const hint = HINTS.find(([pattern]) => pattern.test(text))?.[1];
  const what = text.charAt(0).toUpperCase() + text.slice(1);
  const ended = /[.!?]$/.test(what) ? what : `${what}.`;
  return hint ? `${hint} (${ended})` : ended;
}
