// What the page knows of one run: the columns that the server sends, merged by key.
// docs/dashboard.md says what each of them means.

/** Outcomes that the records name themselves; any other is why an update was dropped. */
export const COUNTED = "counted";
export const SITS_OUT = "sits out";

/** Whether a learner had no work, for whatever reason. */
export const isIdle = (outcome) => outcome?.startsWith(SITS_OUT);
export const UNDER_WAY = "under way";
export const GOES_ON = "goes on";

/** The column of cycles that a metric has: it may have the name of another. */
export const columnOf = (metric) => `metric:${metric.name}`;

/** Metrics that are not the loss itself, which has charts and a column in any case. */
export const besideLoss = (metrics) => metrics.filter(({ name }) => name !== "loss");

/** Without cycles: its updates are of whatever model there was when they were ordered. */
export const isAsynchronous = (run) => Boolean(run.scheme?.startsWith("async:"));

export class Store {
  constructor(documentOfRun) {
    this.run = {};
    this.tasks = [];
    this.learners = [];
    this.outcomes = [];
    this.options = [];
    this.turns = { task: [] };
    this.cycles = { task: [] };
    this.incidents = { time_s: [] };
    this.fog = null;
    this.service = null; // of several tasks, in a report
    this.position = 0;
    this.status = null; // of a live run
    this.heard_ms = 0; // when the status came, on this page's clock
    this.moved = []; // [seconds, sent, received] in bytes, since the page is open
    this.turnAt = []; // task → cycle → learner → row of turns
    this.cycleAt = []; // task → cycle → row of cycles
    this.starts = []; // task → cycle → seconds of its first order
    this.longest = []; // task → seconds of its slowest update
    this.due = []; // task → its longest deadline in a cycle so far, in seconds
    this.version = 0;
    this.merge(documentOfRun);
  }

  /** Take in a document, or what changed of it. */
  merge(part) {
    for (const name of ["run", "tasks", "learners", "outcomes", "options", "position", "epoch", "service"]) {
      if (part[name] != null) this[name] = part[name];
    }
    if (part.turns?.task) this.#mergeTurns(part.turns);
    if (part.cycles?.task) this.#mergeCycles(part.cycles);
    if (part.incidents?.time_s) append(this.incidents, part.incidents);
    if (part.fog) this.fog = mergeFog(this.fog, part.fog);
    this.version++;
  }

  /** Take in what the server says of now. */
  hear(status) {
    this.status = status;
    this.heard_ms = performance.now();
    if (status.sent_bytes != null) {
      this.moved.push([status.now_s, status.sent_bytes, status.received_bytes]);
      if (this.moved.length > 7200) this.moved.splice(0, 3600);
    }
    this.version++;
  }

  #mergeTurns(part) {
    const { task, cycle, learner, began_s, measured_s, dropped_s } = part;
    const isFirst = this.turns.task.length === 0;
    if (isFirst) this.turns = part; // what comes whole is taken as it is: there may be a lot
    for (let i = 0; i < task.length; i++) {
      const of = task[i];
      const number = cycle[i];
      const learners = ((this.turnAt[of] ??= [])[number] ??= []);
      if (isFirst) learners[learner[i]] = i;
      else put(this.turns, part, i, learners, learner[i]);
      const starts = (this.starts[of] ??= []);
      if (!(starts[number] <= began_s[i])) starts[number] = began_s[i];
      const took_s = measured_s[i] ?? dropped_s[i] ?? 0;
      if (!(this.longest[of] >= took_s)) this.longest[of] = took_s;
    }
  }

  #mergeCycles({ metrics, ...part }) {
    for (const name in metrics) part[columnOf({ name })] = metrics[name];
    for (let i = 0; i < part.task.length; i++) {
      const of = part.task[i];
      put(this.cycles, part, i, (this.cycleAt[of] ??= []), part.cycle[i]);
      this.due[of] = Math.max(this.due[of] ?? 0, part.deadline_s?.[i] ?? 0);
    }
  }

  get kind() {
    return this.run.kind;
  }

  get ended() {
    return this.run.state === "finished" || this.run.state === "cut short";
  }

  /** Seconds on the run's clock, running on between two reports. */
  get now_s() {
    if (!this.status || this.status.now_s == null) return null;
    const paused = this.ended || this.lost;
    const since_ms = paused ? 0 : performance.now() - this.heard_ms;
    return this.status.now_s + since_ms / 1000;
  }

  /** The last cycle in which a task gave orders; 0 before the first. */
  cycle(task) {
    return Math.max(0, (this.turnAt[task]?.length ?? 0) - 1);
  }

  /** Cycles of the task that has most. */
  get mostCycles() {
    return Math.max(0, ...this.tasks.map((_, task) => this.cycle(task)));
  }

  /** Row of turns, or undefined. */
  turn(task, cycle, learner) {
    return this.turnAt[task]?.[cycle]?.[learner];
  }

  /** Seconds in a cycle; a deadline can be changed on the way. */
  deadline_s(task, cycle) {
    const row = this.cycleAt[task]?.[cycle];
    const own_s = row === undefined ? null : this.cycles.deadline_s?.[row];
    return own_s ?? this.tasks[task]?.deadline_s ?? this.run.deadline_s;
  }

  /** The longest deadline of a task; 1 s where none is chosen yet. */
  longestDeadline_s(task) {
    return Math.max(this.due[task] ?? 0, this.tasks[task]?.deadline_s ?? this.run.deadline_s ?? 0) || 1;
  }

  outcome(row) {
    return this.outcomes[this.turns.outcome[row]];
  }

  /** By what a learner takes part; null where there is nothing to choose from. */
  option(row) {
    return this.options[this.turns.option?.[row]] || null;
  }

  /** Everybody: who had a turn, and who is here and had none yet. */
  get everybody() {
    const here = Object.keys(this.status?.learners ?? {});
    return [...new Set([...this.learners, ...here])];
  }

  /** Rows of a task's cycles, in order. */
  rowsOf(task) {
    return (this.cycleAt[task] ?? []).filter((row) => row !== undefined);
  }

  /** Cycles of a task that came to their end. */
  done(task) {
    return this.rowsOf(task).filter((row) => this.cycles.time_s[row] != null).length;
  }

  /** *The* metric of a task, {name, percent, more_is_better}; null until it is known. */
  metric(task) {
    return this.tasks[task]?.metrics?.[0] ?? null;
  }

  /** *The* metrics of all tasks, each once. */
  get firstMetrics() {
    return distinct(this.tasks.flatMap((task) => task.metrics.slice(0, 1)));
  }

  /** All metrics of all tasks, each once: first *the* metrics, then the others. */
  get metrics() {
    return distinct([...this.firstMetrics, ...this.tasks.flatMap((task) => task.metrics)]);
  }

  /** Whether a task has a metric. */
  has(task, metric) {
    return this.tasks[task].metrics.some((one) => JSON.stringify(one) === JSON.stringify(metric));
  }

  /** The last figure of a task that is known, for instance its loss. */
  last(task, figure) {
    const column = this.cycles[figure] ?? [];
    return this.rowsOf(task).reduce((found, row) => column[row] ?? found, null);
  }

  /** What the running cycles of all tasks cost together; null where nothing is priced. */
  get cost() {
    const costs = this.tasks.map((_, task) => this.last(task, "cost"));
    const known = costs.filter((cost) => cost != null);
    return known.length ? known.reduce((sum, cost) => sum + cost, 0) : null;
  }

  /** One figure of a task by cycle or time: [x, y], where both are known. */
  line(task, figure, by = "cycle", scale = 1) {
    const x = [];
    const y = [];
    for (const row of this.rowsOf(task)) {
      const value = this.cycles[figure]?.[row];
      if (value == null || this.cycles[by][row] == null) continue;
      x.push(this.cycles[by][row]);
      y.push(scale * value);
    }
    return [x, y];
  }
}

const distinct = (metrics) => [...new Map(metrics.map((one) => [JSON.stringify(one), one])).values()];

/** Write row `i` of `part` where `index[place]` says, or behind the last. */
function put(columns, part, i, index, place) {
  const at = (index[place] ??= columns.task.length);
  for (const name in part) (columns[name] ??= [])[at] = part[name][i];
  return at;
}

function append(columns, part) {
  for (const name in part) for (const value of part[name]) (columns[name] ??= []).push(value);
}

const FOG_KEYS = { slots: ["slot"], flows: ["source", "target"], devices: ["learner"] };

/** Slots, flows and devices, each replaced by what came later under the same key. */
function mergeFog(old, part) {
  const fog = old ?? { slots: {}, flows: {}, devices: {} };
  for (const [table, keys] of Object.entries(FOG_KEYS)) {
    const rows = part[table];
    if (!rows?.[keys[0]]) continue;
    const columns = fog[table];
    const index = new Map();
    const key = (from, i) => keys.map((name) => from[name][i]).join("→");
    (columns[keys[0]] ?? []).forEach((_, i) => index.set(key(columns, i), i));
    rows[keys[0]].forEach((_, i) => {
      const at = index.get(key(rows, i)) ?? columns[keys[0]]?.length ?? 0;
      for (const name in rows) (columns[name] ??= [])[at] = rows[name][i];
      index.set(key(rows, i), at);
    });
  }
  return fog;
}
