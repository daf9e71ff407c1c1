// A learner's own speed: a benchmark, and the drift from it since. The same laws as
// melisma.learner.speed, learning.benchmark, system.drift, system.promise and schemes.dab.

import { Float } from "../wire/values.js";
import { ConfigError } from "./errors.js";

// The line of a benchmark: time = latency + amount / rate.

const FLAT = 1e-9;

export class Line {
  constructor(latencyS, rate, spread = 0) {
    if (!(Number.isFinite(latencyS) && latencyS >= 0 && Number.isFinite(rate) && rate > 0))
      throw new ConfigError(`a benchmark of ${latencyS} s and ${rate}/s: measure again`);
    this.latencyS = latencyS;
    this.rate = rate;
    this.spread = spread;
  }

  seconds(amount) {
    return this.latencyS + amount / this.rate;
  }
}

// A sample or byte takes this share at least of what it did in the fastest call.
const BELIEVED = 0.25;

/** Return the line of least squares whose latency is not negative, nor its slope less. */
export function fit(amounts, seconds, leastS = 0) {
  const isMeasured =
    amounts.every((x) => Number.isFinite(x) && x > 0) &&
    seconds.every((t) => Number.isFinite(t) && t >= 0) &&
    seconds.some((t) => t > 0);
  if (!isMeasured)
    throw new ConfigError(`amounts ${amounts} took ${seconds} s: measure sizes that take time`);
  const most = Math.max(...amounts);
  const longest = Math.max(...seconds);
  const u = amounts.map((x) => x / most);
  const v = seconds.map((t) => t / longest);
  const centre = mean(u);
  const spread = dot(u.map((x) => x - centre), u.map((x) => x - centre));
  let slope = spread > 0 ? dot(u.map((x) => x - centre), v) / spread : 0;
  let latency = mean(v) - slope * centre;
  if (slope <= FLAT || latency < 0) {
    slope = dot(u, v) / dot(u, u);
    latency = 0;
  }
  const least = (leastS * most) / longest;
  if (slope < least) {
    slope = least;
    latency = Math.max(0, mean(v) - least * mean(u));
  }
  return new Line(latency * longest, most / (slope * longest));
}

/** Return the sizes of a benchmark on so many shards: all, or half of them too. */
export function sizesOf(shards, sizes) {
  if (sizes === 1) return [shards];
  return [...new Set([Math.max(1, Math.floor(shards / 2)), shards])].sort((a, b) => a - b);
}

/** Fit a line to each size's median time; the sizes take turns. */
export async function lineOf(work, sizes, { repeats, patience_s }, clock) {
  const rounds = [];
  const within = patience_s || Infinity;
  let [took, longest] = [0, 0];
  while (!rounds.length || (rounds.length < repeats && took + longest <= within)) {
    const round = [];
    for (const size of sizes) {
      const began = clock();
      const amount = await work(size);
      round.push([amount, clock() - began]);
    }
    rounds.push(round);
    const seconds = round.reduce((sum, [, s]) => sum + s, 0);
    [took, longest] = [took + seconds, Math.max(longest, seconds)];
  }
  const columns = sizes.map((_, k) => rounds.map((round) => round[k]));
  const amounts = columns.map((column) => median(column.map(([amount]) => amount)));
  const usual = columns.map((column) => median(column.map(([, s]) => s)));
  const each = rounds.flat().map(([amount, s]) => s / Math.max(amount, 1));
  const line = fit(amounts, usual, BELIEVED * Math.min(...each));
  line.spread = spreadOf(columns.map((column) => column.map(([, s]) => s)), usual);
  return line;
}

function spreadOf(columns, usual) {
  const rounds = columns[0].length;
  if (rounds < 2 || columns.flat().some((s) => !(s > 0))) return 0;
  const off = columns.flatMap((column, k) => column.map((s) => Math.log(s / usual[k])));
  return Math.sqrt(dot(off, off) / ((rounds - 1) * usual.length));
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

const mean = (values) => values.reduce((sum, x) => sum + x, 0) / values.length;
const dot = (u, v) => u.reduce((sum, x, i) => sum + x * v[i], 0);

// Drift, as TCP smooths round-trip times.

const NEWS = 0.5;
const CAUTION = 2;
const UNSEEN = 0.1;
const WRONG = 4;

export class Drift {
  mean = 1;
  deviation = UNSEEN;

  see(predictedS, tookS) {
    if (!(predictedS > 0 && tookS > 0)) return;
    const ratio = tookS / predictedS;
    if (!(ratio / this.mean > 1 / WRONG && ratio / this.mean < WRONG)) {
      this.mean = ratio;
      this.deviation = UNSEEN * ratio;
      return;
    }
    const off = ratio - this.mean;
    this.deviation += NEWS * (Math.abs(off) - this.deviation);
    this.mean += NEWS * off;
  }

  forget() {
    this.deviation += NEWS * (UNSEEN - this.deviation);
    this.mean += NEWS * (1 - this.mean);
  }

  get careful() {
    return this.mean + CAUTION * this.deviation;
  }
}

// Margins that keep a promise of lateness (adaptive conformal inference), of one device.

const PACE = 0.1;
const WINDOW = 100;
const BEGUN = [-1.6448536269514722, -1.0364333894937898, -0.6744897501960817,
  -0.38532046640756773, -0.12566134685507402, 0.12566134685507402, 0.38532046640756773,
  0.6744897501960817, 1.0364333894937898, 1.6448536269514722]; // prettier-ignore
const LATEST = 0.2;
const [LEAST, MOST, LEAST_TAIL] = [-3, 0.5, 0.005];
const [FASTEST, SLOWEST] = [0.5, 1e4];

export class LatePromise {
  constructor(lateAtMost, spread = [0, 0]) {
    this._lateAtMost = this._alpha = lateAtMost;
    this._means = [0, 0];
    this._planned = [0, 0];
    this._cycles = this._last = 0;
    this._seen = [BEGUN.length, BEGUN.length];
    this._residuals = spread.map((s) => BEGUN.map((z) => Math.max(s, UNSEEN) * z));
  }

  /** Return {expected, planned} of compute and link for the next cycle. */
  margins() {
    const { alpha, means, residuals } = this._remembered();
    this._planned = means.map((m, kind) =>
      Math.max(
        m + quantile(residuals[kind], alpha) + Math.max(0, -alpha),
        Math.log(FASTEST),
      ),
    );
    return { expected: means.map(Math.exp), planned: this._planned.map(Math.exp) };
  }

  /** Observe an order: took / benchmarked of compute and link, NaN where not known. */
  see(ratio, late) {
    const { alpha, means, residuals } = this._remembered();
    this._means = means;
    this._residuals = residuals;
    this._last = ++this._cycles;
    let logs = ratio.map((r) => (r > 0 ? Math.log(r) : NaN));
    logs = logs.map((x) => Math.min(Math.max(x, Math.log(FASTEST)), Math.log(SLOWEST)));
    if (late && !logs.some(Number.isFinite)) logs = [...this._planned];
    this._alpha = Math.min(
      MOST,
      Math.max(LEAST, alpha + PACE * (this._lateAtMost - (late ? 1 : 0))),
    );
    logs.forEach((log, kind) => {
      if (!Number.isFinite(log)) return;
      const residual = log - means[kind];
      this._residuals[kind][this._seen[kind] % WINDOW] = residual;
      this._seen[kind] += 1;
      this._means[kind] += LATEST * residual;
    });
  }

  /** Let a cycle pass without work. */
  skip() {
    this._cycles += 1;
  }

  _remembered() {
    const left = (1 - LATEST) ** (this._cycles - this._last);
    return {
      alpha: this._lateAtMost + left * (this._alpha - this._lateAtMost),
      means: this._means.map((m) => left * m),
      residuals: this._residuals.map((row) => {
        const usual = UNSEEN / Math.max(deviation(row), UNSEEN);
        return row.map((r) => r * Math.max(left, usual));
      }),
    };
  }
}

function quantile(row, alpha) {
  const ranked = [...row].sort((a, b) => a - b);
  const place = Math.ceil((1 - alpha) * (ranked.length + 1) - 1e-9) - 1;
  const found = ranked[Math.min(Math.max(place, 0), ranked.length - 1)];
  if (place < ranked.length) return found;
  const tail = Math.sqrt(2 * Math.log(0.5 / Math.min(Math.max(alpha, LEAST_TAIL), MOST)));
  return Math.max(found, tail * deviation(row));
}

const deviation = (row) => Math.sqrt(dot(row, row) / row.length);

// Decentralised allocation: what fits before a deadline.

const MARGIN = 0.03;
const MARGIN_S = 0.05;
const SHARDS_LIMIT = 2 ** 52;

/** Return when to be done so that the deadline is met. */
export function safely(deadlineS) {
  return Math.max(deadlineS / 2, deadlineS - Math.max(MARGIN * deadlineS, MARGIN_S));
}

/** Most samples that take less than the deadline. */
export function mostBefore(law, deadlineS, steps) {
  const endS = deadlineS * (1 - 1e-12);
  const seconds = (d) =>
    d > 0 ? law.stepS * steps * d + law.sampleS * d + law.fixedS : 0;
  const bound = (endS - law.fixedS) / (law.stepS * steps + law.sampleS);
  let d = Math.min(Math.max(Math.ceil(bound) - 1, 0), SHARDS_LIMIT);
  if (d > 0 && seconds(d) >= endS) d -= 1;
  if (d < SHARDS_LIMIT && seconds(d + 1) < endS) d += 1;
  return d;
}

const [COMPUTE, LINK] = [0, 1];

export class Speed {
  constructor(modelBytes) {
    this.modelBytes = modelBytes;
    this.link = null; // seconds of bytes
    this.compute = null; // seconds of samples, trained once
    this.sampleBytes = 0; // of a sample that is sent; 0 where none is
    this.linkDrift = new Drift();
    this.computeDrift = new Drift();
    this._promise = null;
    this._margins = null;
  }

  get isMeasured() {
    return this.link !== null && this.compute !== null;
  }

  /** Seconds to send the model back, with care; 0 before any benchmark. */
  uploadS() {
    if (!this.link) return 0;
    return this.link.seconds(this.modelBytes) * this._slower(true)[LINK];
  }

  /** Plan from now on so that this share of cycles is late; 0: by the drift. */
  promise(lateAtMost) {
    const spread = [this.compute?.spread ?? 0, this.link?.spread ?? 0];
    this._promise = lateAtMost ? new LatePromise(lateAtMost, spread) : null;
    this.renew();
  }

  renew() {
    this._margins = this._promise?.margins() ?? null;
  }

  _slower(careful) {
    if (this._margins) return careful ? this._margins.planned : this._margins.expected;
    const drifts = [this.computeDrift, this.linkDrift];
    return drifts.map((drift) => (careful ? drift.careful : drift.mean));
  }

  kept(ratio, late) {
    this._promise?.see(ratio, late);
  }

  transferred(sizesBytes, tookS) {
    if (!this.link) return;
    const predictedS = sizesBytes.reduce((sum, size) => sum + this.link.seconds(size), 0);
    this.linkDrift.see(predictedS, tookS);
  }

  trained(samples, tookS) {
    if (this.compute && samples) this.computeDrift.see(this.compute.seconds(samples), tookS);
  }

  forget() {
    this.linkDrift.forget();
    this.computeDrift.forget();
    this._promise?.skip();
  }

  law({ careful, drifted = true }) {
    const { link, compute } = this;
    if (!this.isMeasured) throw new ConfigError("not measured yet: call measure first");
    const slower = drifted ? this._slower(careful) : [1, 1];
    let fixedS = 2 * link.seconds(this.modelBytes);
    if (this.sampleBytes) fixedS += link.latencyS;
    return {
      stepS: slower[COMPUTE] / compute.rate,
      sampleS: (slower[LINK] * this.sampleBytes) / link.rate,
      fixedS: slower[LINK] * fixedS + slower[COMPUTE] * compute.latencyS,
    };
  }

  /** Return the expected delay law as the orchestrator is told. */
  report({ drifted }) {
    return this.speeds(this.law({ careful: false, drifted }));
  }

  speeds({ stepS, sampleS, fixedS }) {
    return {
      $record: "Speeds",
      step_s: new Float(stepS),
      sample_s: new Float(sampleS),
      fixed_s: new Float(fixedS),
      states: [],
      owner: null,
      compute_spread: new Float(this.compute?.spread ?? 0),
      link_spread: new Float(this.link?.spread ?? 0),
    };
  }

  /** Return how many shards are finished before the deadline. */
  bid(shard, deadlineS, steps, { adaptive }) {
    const isAdaptive = adaptive || this._margins !== null;
    const law = this.law({ careful: isAdaptive, drifted: isAdaptive });
    const perShard = {
      stepS: law.stepS * shard,
      sampleS: law.sampleS * shard,
      fixedS: law.fixedS,
    };
    return mostBefore(perShard, isAdaptive ? safely(deadlineS) : deadlineS, steps);
  }
}
