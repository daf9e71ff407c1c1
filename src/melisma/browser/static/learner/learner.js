// A learner: what a device does with the requests that it gets. The functions and their
// answers are those of melisma.learner.service; fleets.messages has the table.

import { measure } from "./benchmark.js";
import { ConfigError, TrainingError, Unprepared } from "./errors.js";
import * as orders from "./orders.js";
import { Cache, Samples, checkShard } from "./samples.js";
import { WarmTask, idOf } from "./task.js";
import { Link, LocalTraining, clock } from "./training.js";

/** Tasks that are kept warm; the least recently prepared goes first. */
const TASKS = 4;
/** Batches that a probe times. */
const PROBED = 5;
const CACHE_BYTES = 1 << 28;

/** Trains on request, on shards that it fetches or on the page's own data. */
export class Learner {
  /**
   * `own`: samples as the page hands them over, or null. `tell(message)` hears what the
   * page may show. `orchestrator.call(name, args, kwargs, options)` reaches the other side.
   */
  constructor({ name, engine, own = null, cacheBytes = CACHE_BYTES, tell = () => {} }) {
    this.name = name;
    this.isPaused = false; // by its owner: what is trained is sent as it is
    this._engine = engine;
    this._tell = tell;
    this._tasks = new Map();
    this._probes = new Map();
    this._working = Promise.resolve();
    this._device = {
      cache: new Cache(cacheBytes),
      own: own && ownSamples(own),
      seed: crc(name),
      onBatch: (request, batches, of) => this._progress(request, batches, of),
    };
    Object.defineProperty(this._device, "isPaused", { get: () => this.isPaused });
    this._toldAt = 0;
    this.orchestrator = null;
  }

  /** The functions that the orchestrator calls. */
  functions() {
    const exposed = (idempotent, method, ...names) => ({
      idempotent,
      call: (args, kwargs, request) => {
        const given = names.map((name, i) => args[i] ?? kwargs.get(name));
        if (args.length + kwargs.size !== names.length || given.includes(undefined))
          throw new TypeError(`give ${names.join(", ")}`);
        return method.call(this, ...given, request);
      },
    });
    return {
      prepare: exposed(true, this.prepare, "spec"),
      measure: exposed(false, this.measure, "task", "keys"),
      speeds: exposed(true, this.speeds, "task", "drifted"),
      bid: exposed(true, this.bid, "task", "deadline_s", "steps"),
      probe: exposed(false, this.probe, "request"),
      train: exposed(false, this.train, "request"),
    };
  }

  /** Make a task's network, unless it is warm. */
  async prepare(spec, request) {
    orders.checkSpec(spec);
    if (spec.federated && !this._device.own)
      throw new ConfigError(`${this.name} has no data of its own, which federated mode needs`);
    const id = idOf(spec);
    let task = this._tasks.get(spec.task);
    if (task?.id !== id) {
      this._tell({ tell: "cycle", task: spec.task, cycle: 0, phase: "preparing" });
      const { signal } = request;
      const outline = await this.orchestrator.call("outline", [spec.task], {}, { signal });
      orders.checkOutline(outline);
      task = new WarmTask(this._engine, spec, outline, id);
      if (spec.federated) this._checkOwn(task);
      this._tasks.get(spec.task)?.dispose();
      this._probes.delete(spec.task);
    }
    this._tasks.delete(spec.task);
    this._tasks.set(spec.task, task);
    while (this._tasks.size > TASKS) this._forget(this._tasks.keys().next().value);
    const isTold = !spec.private && task.speed.isMeasured;
    return {
      $record: "Ready",
      measured: task.speed.isMeasured,
      samples: spec.federated ? this._device.own.length : null,
      speeds: isTold ? this.speeds(spec.task, spec.drifted) : null,
    };
  }

  /** Benchmark transfers and training on these shards, and keep the result. */
  async measure(name, keys, request) {
    const task = this._prepared(name);
    orders.checkBenchmark(keys, task.spec);
    await this._alone(task, request, async (work) => {
      this._tell({ tell: "cycle", task: name, cycle: 0, phase: "benchmarking" });
      const link = new Link(this.orchestrator, task, work.signal);
      await measure(this._device, task, keys, link);
      const { compute, link: line } = task.speed;
      this._tell({ tell: "speed", samplesPerS: compute.rate, bytesPerS: line.rate });
    });
    return null;
  }

  /** Return the delay law; ConfigError if the task keeps it private. */
  speeds(name, drifted) {
    orders.checkFlag("drifted", drifted);
    if (this._prepared(name).spec.private)
      throw new ConfigError(`${this.name} keeps its speed private in this task`);
    return this._asked(name).speed.report({ drifted });
  }

  /** Return how many shards are finished before the deadline. */
  bid(name, deadlineS, steps) {
    orders.checkBid(deadlineS, steps);
    const { spec, speed } = this._asked(name);
    return speed.bid(spec.shard, deadlineS, steps, { adaptive: spec.adaptive });
  }

  /** Begin to train and return how fast that goes; `train` brings the rest. */
  async probe(request, call) {
    const task = this._ordered(request);
    this._checkMeasured(task);
    const work = workOf(call);
    const training = this._training(task, request, work);
    let report;
    const reported = new Promise((resolve) => {
      report = resolve;
    });
    const first = this._alone(task, call, () => this._begin(training, report), work);
    first.catch(() => {}); // raised in who waits for it
    this._probes.set(request.task, { training, first });
    return Promise.race([reported, first.then(() => reported)]);
  }

  async _begin(training, report) {
    const { request } = training;
    await training.fetchModel();
    const examples = await training.examples(request.keys, request.samples);
    const since = clock();
    let batches = -1;
    const trained = await training.train(examples, (passes) => {
      batches += 1;
      if (batches === PROBED) report(training.speeds((clock() - since) / passes));
    });
    if (batches < PROBED)
      report(training.speeds((clock() - since) / Math.max(1, trained)));
  }

  /** Fetch, train until done or until the deadline nears, return the update. */
  async train(request, call) {
    const task = this._ordered(request);
    task.idle = false;
    const training = request.first
      ? await this._probed(request)
      : this._training(task, request, workOf(call));
    const work = request.first ? workOf(call) : training.work;
    training.work = work;
    const about = { tell: "cycle", task: request.task, cycle: request.cycle };
    const due = { samples: request.samples, steps: request.steps, deadlineS: request.deadline_s };
    const phase = (now, more = {}) => this._tell({ ...about, ...due, phase: now, ...more });
    try {
      const update = await this._alone(task, call, () => this._train(training, phase), work);
      phase("done", { seconds: training.tookS, trained: update.samples });
      return update;
    } catch (error) {
      const isGone = work.signal.aborted;
      phase(isGone ? "cancelled" : "failed", { seconds: training.tookS });
      throw error;
    }
  }

  async _train(training, phase) {
    const { request } = training;
    const shard = this._prepared(request.task).spec.shard;
    let examples = null;
    try {
      phase("fetching");
      if (!request.first) await training.fetchModel();
      const keys = request.keys.slice(Math.floor(request.first / shard));
      const samples = request.samples - request.first;
      if (samples) examples = await training.examples(keys, samples);
    } catch (error) {
      if (error.name === "CallTimeout") {
        training.observe();
        training.kept(true);
      }
      throw error;
    } finally {
      training.observe();
    }
    phase("training");
    if (examples) await training.train(examples);
    if (training.work.signal.aborted) throw new TrainingError("nobody waits for this work");
    phase("sending");
    return training.update();
  }

  /** Return the training that a probe began, once its first part is done. */
  async _probed(request) {
    const probe = this._probes.get(request.task);
    if (!probe || probe.training.request.cycle !== request.cycle)
      throw new Unprepared(`${this.name} was not probed in cycle ${request.cycle}`);
    await probe.first;
    this._probes.delete(request.task);
    probe.training.request = { ...request };
    return probe.training;
  }

  _training(task, request, work) {
    return new LocalTraining(this._device, task, request, this.orchestrator, work);
  }

  /**
   * Have the device alone. Work is given up when nobody waits for it, or newer work waits
   * for the network.
   */
  async _alone(task, call, does, work = workOf(call)) {
    if (work.signal.aborted) throw new TrainingError("nobody waits for this work");
    task.newest?.abort();
    task.newest = work;
    const before = this._working;
    let done;
    this._working = new Promise((resolve) => {
      done = resolve;
    });
    await before;
    try {
      if (work.signal.aborted) throw new TrainingError("newer work waits for the network");
      return await does(work);
    } finally {
      if (task.newest === work) task.newest = null;
      done();
    }
  }

  /** Return a measured task; forget some drift if no work came since last time. */
  _asked(name) {
    const task = this._prepared(name);
    this._checkMeasured(task);
    if (task.idle) task.speed.forget();
    task.speed.renew();
    task.idle = true;
    return task;
  }

  _checkMeasured(task) {
    if (!task.speed.isMeasured)
      throw new ConfigError(`${this.name} has not measured itself: call measure first`);
  }

  _ordered(request) {
    orders.recordOf(request, "TrainRequest");
    const task = this._prepared(request.task);
    orders.checkTrain(request, task.spec, this._device.own?.length ?? 0);
    return task;
  }

  _prepared(name) {
    orders.checkTask(name);
    const task = this._tasks.get(name);
    if (!task) throw new Unprepared(`${this.name} has no task '${name}': call prepare first`);
    return task;
  }

  /** ConfigError unless the page's own samples are like those of the task. */
  _checkOwn(task) {
    try {
      task.checkSamples(this._device.own);
    } catch (error) {
      throw new ConfigError(`own data: ${error.message}`);
    }
  }

  _forget(name) {
    this._tasks.get(name).dispose();
    this._tasks.delete(name);
    this._probes.delete(name);
  }

  _progress(request, batches, of) {
    const now = performance.now();
    if (now - this._toldAt < 200) return;
    this._toldAt = now;
    this._tell({ tell: "progress", task: request.task, cycle: request.cycle, batches, of });
  }

  /** Give up all work, and the memory of all tasks. */
  close() {
    for (const [name, task] of [...this._tasks]) {
      task.newest?.abort();
      this._forget(name);
    }
  }
}

/** An AbortController of a piece of work, which a cancelled call aborts. */
function workOf(call) {
  const work = new AbortController();
  if (call.signal.aborted) work.abort();
  else call.signal.addEventListener("abort", () => work.abort(), { once: true });
  return work;
}

/** The page's own samples, checked. */
function ownSamples(own) {
  const shard = new Map(Object.entries(own));
  checkShard(shard);
  return new Samples([shard]);
}

function crc(text) {
  let sum = ~0;
  for (const byte of new TextEncoder().encode(text)) {
    sum ^= byte;
    for (let i = 0; i < 8; i++) sum = (sum >>> 1) ^ (0xedb88320 & -(sum & 1));
  }
  return ~sum >>> 0;
}
