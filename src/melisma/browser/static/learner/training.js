// Local training for one order: fetch, train batch by batch, halt in time. Budgets are
// relative, and the clock is monotonic, from the moment an order arrives.

import { CallTimeout, Float, elements, memoryOf } from "../wire/wire.js";
import { DataError, TrainingError } from "./errors.js";
import { toldIfShort } from "./memory.js";
import { LASTS, checkParameters } from "./orders.js";
import { Draws, Samples, batchesOf, checkFetched } from "./samples.js";
import { safely } from "./speed.js";

export const clock = () => performance.now() / 1000;

/** Bytes of shards that are asked for together. */
const PART_BYTES = 1 << 24;
/** Messages are heard at least so often while batches are trained. */
const LISTEN_MS = 16;
const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()();
channel.port1.unref?.();

/** Let messages in; a timer would wait for 4 ms. */
export function listen() {
  return new Promise((resolve) => {
    waiting.push(resolve);
    channel.port2.postMessage(null);
  });
}

/** Return the training of a cycle: with the rate that is due then. */
export function trainingAt(training, cycle) {
  return { ...training, rate: training.rate * shareOf(training, Math.max(1, cycle)) };
}

function shareOf({ schedule, warmup, cycles, floor, decay }, cycle) {
  if (cycle <= warmup) return cycle / warmup;
  const begun = cycle - warmup - 1;
  const past = begun / Math.max(begun + 1, cycles - warmup);
  if (schedule === "linear") return 1 - (1 - floor) * past;
  if (schedule === "cosine")
    return floor + ((1 - floor) * (1 + Math.cos(Math.PI * past))) / 2;
  if (schedule === "exponential") return Math.max(floor, decay ** begun);
  return 1;
}

/** What is trained in one order, over one or several parts of its samples. */
export class Session {
  constructor(net, rate) {
    this._net = net;
    this._loss = 0;
    this._passes = this._batches = this._samples = this._due = 0;
    net.fresh({ rate });
  }

  get passes() {
    return this._passes;
  }

  /** Train on `n` samples; ask `halt` before each batch. */
  async train(samples, n, steps, training, draws, halt = () => false) {
    const perPass = Math.ceil(n / training.batch);
    this._due += steps * perPass;
    let batches = 0;
    let heard = performance.now();
    for (const rows of batchesOf(n, steps, training, draws)) {
      if (performance.now() - heard > LISTEN_MS) {
        await listen();
        heard = performance.now();
      }
      if (halt(batches, this._passes)) break;
      const { x, y } = samples.batch(rows);
      const loss = Number(await this._net.train(x, y));
      this._loss += loss * rows.length;
      this._passes += rows.length;
      batches += 1;
    }
    this._batches += batches;
    this._samples += Math.min(n, batches * training.batch);
  }

  /** What was really done, as every report has it. */
  trained() {
    return {
      samples: this._samples,
      batches: this._batches,
      loss: new Float(this._loss / Math.max(this._passes, 1)),
      halted: this._batches < this._due,
    };
  }
}

/** Transfers of one task, checked as they arrive. */
export class Link {
  constructor(orchestrator, task, signal) {
    this._orchestrator = orchestrator;
    this._task = task;
    this._signal = signal;
  }

  async parameters(cycle, withinS = null) {
    const model = await this._call("parameters", [this._name, cycle], withinS);
    checkParameters(model, this._task.outline);
    return model;
  }

  /** Fetch what is added to the gradients of a cycle. */
  async correction(cycle, withinS) {
    const correction = await this._call("correction", [this._name, cycle], withinS);
    checkParameters(correction, this._task.outline);
    return correction;
  }

  /** Fetch shards, part by part; CallTimeout if that takes too long. */
  async shards(keys, withinS = null) {
    const { spec, speed } = this._task;
    const began = clock();
    const shards = [];
    const step = speed.sampleBytes
      ? Math.max(1, Math.floor(PART_BYTES / (spec.shard * speed.sampleBytes)))
      : keys.length;
    for (let first = 0; first < keys.length; first += step) {
      if (withinS !== null && first && clock() - began > withinS)
        throw new CallTimeout(`${first} of ${keys.length} shards came within ${withinS} s`);
      const part = keys.slice(first, first + step);
      const came = await this._call("shards", [this._name, part], withinS);
      checkFetched(came, part.length, spec.shard);
      shards.push(...came);
    }
    return shards;
  }

  async filler(size) {
    const filler = await this._call("filler", [this._name, size]);
    if (filler?.data?.byteLength !== size)
      throw new DataError(`${size} bytes of filler were asked for, and others came`);
    return filler;
  }

  get _name() {
    return this._task.spec.task;
  }

  _call(name, args, withinS = null) {
    return this._orchestrator.call(name, args, {}, { withinS, signal: this._signal });
  }
}

/** An order from its arrival to its update. */
export class LocalTraining {
  constructor(device, task, request, orchestrator, work) {
    this.request = request;
    this.work = work;
    this._device = device;
    this._task = task;
    this._began = clock();
    this._link = new Link(orchestrator, task, work.signal);
    this._draws = new Draws(task.spec.seed, request.cycle, device.seed);
    this._training = trainingAt(task.training, request.cycle);
    this._session = null;
    this._trainingS = this._fetchingS = 0;
    this._fetchedBytes = [];
    this._linkRatio = this._computeRatio = NaN;
  }

  get tookS() {
    return clock() - this._began;
  }

  async fetchModel() {
    const { cycle, anew } = this.request;
    const size = this._task.speed.modelBytes;
    const model = await this._fetch((s) => this._link.parameters(cycle, s), size);
    const isFirst = anew || cycle === 1;
    await toldIfShort(this._task, null, async () => {
      const net = this._task.netFor(isFirst);
      await net.load(model);
      this._session = new Session(net, this._training.rate);
    });
    if (!this.request.corrected) return;
    this._task.net.correct(await this._fetch((s) => this._link.correction(cycle, s), size));
  }

  /** Return data to train on: these shards, or some of the device's own. */
  async examples(keys, samples) {
    const { spec, speed } = this._task;
    if (spec.federated) {
      const rows = this._draws.permutation(this._device.own.length).subarray(0, samples);
      return new Rows(this._device.own, rows);
    }
    const fetch = (missing) => {
      const size = missing.length * spec.shard * speed.sampleBytes;
      return this._fetch((s) => this._link.shards(missing, s), size);
    };
    const found = new Samples(await this._device.cache.get(keys, fetch));
    this._task.checkSamples(found);
    return found;
  }

  /** Train on one part until it is done or the deadline nears. */
  async train(examples, each = () => {}) {
    const began = clock();
    const { steps } = this.request;
    const { speed } = this._task;
    const before = this._session.passes;
    const due = steps * Math.ceil(examples.length / this._training.batch);
    const halts = this._halt();
    const halt = (batches, passes) => {
      each(passes - before);
      this._device.onBatch(this.request, batches, due);
      return halts(batches);
    };
    await toldIfShort(this._task, examples, () =>
      this._session.train(
        examples,
        examples.length,
        steps,
        this._training,
        this._draws,
        halt,
      ),
    );
    const passes = this._session.passes - before;
    const tookS = clock() - began;
    speed.trained(passes, tookS);
    this._trainingS += tookS;
    if (speed.compute && this._session.passes)
      this._computeRatio = this._trainingS / speed.compute.seconds(this._session.passes);
    return passes;
  }

  /** Correct the benchmark by what the transfers took. */
  observe() {
    const { link } = this._task.speed;
    this._task.speed.transferred(this._fetchedBytes, this._fetchingS);
    const benchmarkedS = link ? secondsOf(link, this._fetchedBytes) : 0;
    if (benchmarkedS > 0) this._linkRatio = this._fetchingS / benchmarkedS;
    this._fetchedBytes = [];
    this._fetchingS = 0;
  }

  /** Return the device's speed now, at `sampleS` a sample, with its transfers'. */
  speeds(sampleS) {
    const { speed } = this._task;
    const law = speed.law({ careful: false, drifted: false });
    const slower = this._fetchingS / secondsOf(speed.link, this._fetchedBytes);
    const reported = speed.speeds({
      stepS: sampleS,
      sampleS: slower * law.sampleS,
      fixedS: slower * law.fixedS,
    });
    return { ...reported, compute_spread: new Float(0), link_spread: new Float(0) };
  }

  kept(late) {
    this._task.speed.kept(
      [this._computeRatio, this._linkRatio],
      late || this.tookS > this.request.deadline_s,
    );
  }

  async update() {
    const trainedS = this.tookS;
    const trained = this._session.trained();
    this.kept(trained.halted);
    const { outline, spec } = this._task;
    const parameters = new Map();
    const found = await this._task.net.parameters();
    for (const [name, { dtype, shape }] of outline.parameters) {
      const value = found.get(name);
      if (!value || value.data.length !== elements(shape))
        throw new TrainingError(`the engine has no ${name} of shape [${shape}]`);
      const Kind = memoryOf(dtype)[0];
      const data = value.data instanceof Kind ? value.data : Kind.from(value.data);
      parameters.set(name, { dtype, shape, data });
    }
    return {
      $record: "Update",
      ...trained,
      cycle: this.request.cycle,
      parameters,
      packed: null,
      downloaded_s: spec.private ? null : new Float(trainedS - this._trainingS),
      trained_s: spec.private ? null : new Float(trainedS),
      spent_j: null,
    };
  }

  /** Fetch, unless that takes longer than the whole cycle may: CallTimeout. */
  async _fetch(fetch, sizeBytes) {
    this._fetchedBytes.push(sizeBytes);
    const withinS = LASTS.has(this.request.late) ? null : this.request.deadline_s;
    const began = clock();
    try {
      return await fetch(withinS);
    } finally {
      this._fetchingS += clock() - began;
    }
  }

  /** Return a function for each batch: whether its result would be too late. */
  _halt() {
    const { deadline_s: deadlineS, late } = this.request;
    const every = this._task.spec.look_every;
    const start = clock();
    let end = this._began + safely(deadlineS) - this._task.speed.uploadS();
    const over = this._began + deadlineS;
    return (trained) => {
      const now = clock();
      const batchS = trained ? (now - start) / trained : 0;
      if (this.work.signal.aborted || this._device.isPaused) return true;
      if (late === "halt") return now + batchS > end;
      if (late === "overrun") return trained > 0 && (trained - 1) % every === 0 && now > over;
      if (late !== "carry") return false;
      if (!trained && now > end) end = now - ((now - end) % deadlineS) + deadlineS;
      return trained > 0 && now + batchS > end;
    };
  }
}

function secondsOf(line, sizes) {
  return sizes.reduce((sum, size) => sum + line.seconds(size), 0);
}

/** Some rows of samples. */
class Rows {
  constructor(samples, rows) {
    this._samples = samples;
    this._rows = rows;
    this.length = rows.length;
    this.sampleBytes = samples.sampleBytes;
  }

  batch(rows) {
    return this._samples.batch(rows.map((row) => this._rows[row]));
  }
}
