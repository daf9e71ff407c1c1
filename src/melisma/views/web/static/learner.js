// How a learner stands, and what it came to over all cycles.

import { COUNTED, GOES_ON, SITS_OUT, UNDER_WAY, isIdle } from "./store.js";

/** Something that a coded cycle could do without is no loss. */
export const isNeedless = (why) => why?.startsWith("not needed");

/** One row for each learner, with what its turns come to. */
export function tallies(store) {
  const rows = store.everybody.map((name, place) => blank(name, place));
  const { learner, task, samples, trained, measured_s, halted, dropped_s, predicted_s } = store.turns;
  const { late, planned_s, saved_bytes, predicted_j, spent_j } = store.turns;
  for (let row = 0; row < task.length; row++) {
    const one = rows[learner[row]];
    if (!one) continue;
    if (one.last === null || !older(store, row, one.last)) one.last = row;
    if (halted[row]) one.halted++;
    if (dropped_s[row] != null && !isNeedless(store.outcome(row))) one.dropped++;
    if (!samples[row]) continue;
    one.cycles++;
    if (late?.[row]) one.late++;
    if (planned_s?.[row] && predicted_s[row] != null) {
      one.planned++;
      one.reserve += 1 - predicted_s[row] / planned_s[row];
    }
    one.samples += samples[row];
    one.saved += saved_bytes?.[row] ?? 0;
    if (predicted_j?.[row] != null) one.predicted_j = (one.predicted_j ?? 0) + predicted_j[row];
    if (spent_j?.[row] != null) one.spent_j = (one.spent_j ?? 0) + spent_j[row];
    one.trained += trained[row] ?? 0;
    const distance = store.turns.distance?.[row];
    if (distance != null) one.distance = Math.max(one.distance ?? 0, distance);
    if (measured_s[row] == null) continue;
    one.measured++;
    one.measured_s += measured_s[row];
    const deadline_s = store.deadline_s(task[row], store.turns.cycle[row]);
    one.truancy += Math.max(0, measured_s[row] / deadline_s - 1);
    if (predicted_s[row] != null && measured_s[row]) {
      one.predicted++;
      one.off += Math.abs(predicted_s[row] / measured_s[row] - 1);
    }
  }
  const absent = absences(store);
  for (const one of rows) finish(store, one, absent);
  return rows;
}

function blank(name, place) {
  return {
    ...{ name, place, last: null, cycles: 0, samples: 0, trained: 0, halted: 0, dropped: 0 },
    ...{ measured: 0, measured_s: 0, truancy: 0, predicted: 0, off: 0, distance: null },
    ...{ late: 0, planned: 0, reserve: 0, saved: 0, predicted_j: null, spent_j: null },
  };
}

const older = (store, row, than) => store.turns.began_s[row] < store.turns.began_s[than];

function finish(store, one, absent) {
  const { turns, status } = store;
  const here = store.status?.learners ?? {};
  const known = Object.hasOwn(here, one.name) ? here[one.name] : undefined;
  one.truancy = one.measured ? one.truancy / one.measured : null;
  one.off = one.predicted ? one.off / one.predicted : null;
  one.late = one.cycles ? one.late / one.cycles : null;
  one.reserve = one.planned ? one.reserve / one.planned : null;
  one.mean_s = one.measured ? one.measured_s / one.measured : null;
  for (const name of ["task", "cycle", "downloaded_s", "trained_s"]) {
    one[name] = one.last === null ? null : turns[name][one.last];
  }
  one.last_s = one.last === null ? null : turns.measured_s[one.last];
  one.option = one.last === null ? null : store.option(one.last);
  one.given = one.last === null ? null : turns.samples[one.last];
  one.did = one.last === null ? null : turns.trained[one.last];
  one.seen_s = known?.seen_s != null ? Math.max(0, status.now_s - known.seen_s) : null;
  [one.state, one.why] = stateOf(store, one, known, absent.get(one.place));
}

/** Who has gone or was sent away, and why. */
function absences(store) {
  const gone = new Map();
  const { learner, what, why } = store.incidents;
  for (let i = 0; i < (what?.length ?? 0); i++) {
    const place = placeOf(store, learner[i]);
    if (what[i] === "expelled") gone.set(place, ["expelled", why[i]]);
    else if (gone.get(place)?.[0] === "expelled") continue; // of course it is gone, and for good
    else if (what[i] === "left") gone.set(place, ["lost", "it is not there any more"]);
    else if (what[i] === "joined") gone.delete(place);
  }
  return gone;
}

/** Incidents name learners by their place, or by name where they had no turn. */
export const placeOf = (store, learner) =>
  typeof learner === "number" ? learner : store.learners.indexOf(learner);

function stateOf(store, one, known, absence) {
  if (absence) return absence;
  if (known && !known.connected && !store.ended) return ["lost", "no connection"];
  if (one.last === null) return ["waiting", "it had no work so far"];
  const outcome = store.outcome(one.last);
  if (isIdle(outcome)) {
    return ["sits out", outcome.slice(SITS_OUT.length + 2) || "it was given no work in this cycle"];
  }
  if (outcome === COUNTED) {
    const halted = store.turns.halted[one.last];
    return [halted ? "halted" : "done", halted ? "it stopped to be in time" : "its update counts"];
  }
  if (outcome === UNDER_WAY) return [phase(store, one.last), ""];
  if (outcome === GOES_ON) return ["goes on", "its update counts when it comes"];
  return [isNeedless(outcome) ? "not needed" : "dropped", outcome];
}

function phase(store, row) {
  const { downloaded_s, trained_s } = store.turns;
  if (store.ended) return "cut short";
  if (trained_s[row] != null) return "uploading";
  if (downloaded_s[row] != null) return "training";
  return UNDER_WAY; // learners tell their times with their update
}
