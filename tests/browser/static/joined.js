// A learner of a test's page, in its worker; `told` is what it tells the page.

export const told = [];
export const worker = new Worker("/static/learner/worker.js", { type: "module" });
worker.onmessage = ({ data }) => told.push(data);
worker.onerror = (event) => told.push({ tell: "broken", message: event.message });

export function join(more = {}) {
  const { name = "phone", own = null, options = {} } = more;
  worker.postMessage({ do: "join", url: location.origin, token: "", name, own, options });
}

export const phases = () => told.filter((m) => m.tell === "cycle").map((m) => m.phase);
