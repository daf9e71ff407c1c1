// A connection of a page to a test's server, with functions that Python calls back.

import { connect } from "/static/wire/wire.js";

export const states = [];
export const cancelled = [];
let runs = 0;

const functions = {
  twice: { idempotent: true, call: ([value]) => 2 * value },
  array: { idempotent: false, call: ([array]) => (runs++, array) },
  runs: { idempotent: false, call: () => runs },
  fails: {
    idempotent: false,
    call: () => {
      throw new RangeError("too much");
    },
  },
  waits: {
    idempotent: false,
    call: (args, kwargs, request) =>
      new Promise((resolve) => {
        request.signal.addEventListener("abort", () => {
          cancelled.push(request.name);
          resolve(null);
        });
      }),
  },
};

export const connection = await connect({
  url: location.origin,
  name: "page",
  functions,
  limits: window.limits,
  onState: (state) => states.push(state),
});
