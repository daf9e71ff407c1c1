// Talk to the orchestrator: the token, questions, and the stream of what happens.

const KEY = "melisma-token";

/** Kept values; a page in a sandbox has no storage and does without. */
export function keep(storage, key, value) {
  try {
    if (value === undefined) return window[storage].getItem(key);
    window[storage].setItem(key, value);
  } catch {
    // nothing is kept
  }
  return value ?? null;
}

/** What stands behind the # of the address. */
export const fragment = () => new URLSearchParams(location.hash.slice(1));

/** Change the fragment without leaving a trace in the history. */
export function rewrite(changes) {
  const facts = fragment();
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "") facts.delete(name);
    else facts.set(name, value);
  }
  history.replaceState(null, "", `#${facts}`);
}

/** Take a token out of the address, where others could read it. */
export function adopt() {
  const token = fragment().get("token");
  if (token === null) return;
  keep("sessionStorage", KEY, token);
  rewrite({ token: null });
}

export const setToken = (token) => keep("sessionStorage", KEY, token);

function headers() {
  const token = keep("sessionStorage", KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** The server's answer was no. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }

  get needsToken() {
    return this.code === 401 || this.code === 403;
  }
}

async function asked(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw new Refused(answer.status, said?.error?.message ?? `the server answered ${answer.status}`);
}

export const get = async (path) => (await asked(path)).json();

export const control = (action) =>
  asked("api/control", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(action),
  });

/** Silence after which a stream is taken for dead; the server speaks every 5 s. */
const SILENCE_MS = 12_000;

/** Read events of a run until the server ends them; calls `tell(event, data)` for each. */
export async function follow({ id, after, epoch }, tell, signal) {
  const own = new AbortController();
  signal.addEventListener("abort", () => own.abort(), { once: true });
  if (signal.aborted) own.abort();
  let watchdog = 0;
  const heard = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => own.abort(), SILENCE_MS);
  };
  try {
    heard();
    const path = `api/runs/${encodeURIComponent(id)}/events?${new URLSearchParams({ after, epoch })}`;
    const answer = await asked(path, { signal: own.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(tell);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      parse(value);
    }
  } finally {
    clearTimeout(watchdog);
  }
}

/** A function that takes text as it comes and tells whole events of text/event-stream. */
export function parser(tell) {
  let rest = "";
  return (text) => {
    const blocks = (rest + text).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const field = (name) =>
        lines
          .filter((line) => line.startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).trimStart());
      const data = field("data").join("\n");
      if (data) tell(field("event")[0] ?? "message", JSON.parse(data));
    }
  };
}
