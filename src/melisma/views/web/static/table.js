// Tables that sort and filter, keep their place, and touch only what changed.

import { button, el, say } from "./dom.js";

/**
 * Columns are {title, of(row) → value, text?(row) → string, name?: true, node?(row) → element, rank?}. Where there is
 * no room for all of them, those of the highest rank are hidden first.
 * Rows are found again by `key(row)`.
 */
export class Table {
  #sort = null; // [column, 1 or −1]
  #lines = new Map(); // key → {tr, cells}

  constructor(columns, key, { label, filter = false, words = false, most = Infinity } = {}) {
    Object.assign(this, { columns, key, most, rows: [], wanted: "" });
    this.heads = columns.map((column) => this.#head(column));
    this.body = el("tbody");
    this.more = el("p", { class: "dim", hidden: true });
    const table = el(
      "table",
      { class: words ? "words" : "" },
      el("thead", {}, el("tr", {}, ...this.heads)),
      this.body,
    );
    this.wide = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, table);
    this.fit = new Fit(
      this.wide,
      table,
      columns.map((column) => (column.name || column.node ? 0 : (column.rank ?? 5))),
      columns.map((column) => column.title),
    );
    const input = el("input", {
      type: "search",
      placeholder: "filter",
      "aria-label": `filter ${label}`,
      oninput: () => ((this.wanted = input.value.trim().toLowerCase()), this.draw(this.rows)),
    });
    this.root = el(
      "div",
      {},
      el("div", { class: "row over" }, filter ? input : null, this.fit.button),
      this.wide,
      this.more,
    );
  }

  #head(column) {
    const head = el("th", { scope: "col", "aria-sort": "none" });
    if (column.node) head.append(el("span", { class: "unseen" }, column.title));
    else head.append(button(column.title, () => this.#turn(column), { title: column.hint }));
    return head;
  }

  /** Sort by a column, then the other way round, then not at all. */
  #turn(column) {
    const [old, way] = this.#sort ?? [];
    if (old !== column) this.#sort = [column, column.name ? 1 : -1];
    else if (way === (column.name ? 1 : -1)) this.#sort = [column, -way];
    else this.#sort = null;
    this.heads.forEach((head, i) => {
      const sorted = this.#sort?.[0] === this.columns[i];
      head.setAttribute("aria-sort", !sorted ? "none" : this.#sort[1] > 0 ? "ascending" : "descending");
    });
    this.draw(this.rows);
  }

  draw(rows) {
    this.rows = rows;
    const found = rows.filter((row) => !this.wanted || this.#text(row).includes(this.wanted));
    const shown = this.#sorted(found).slice(0, this.most);
    const kept = new Set();
    shown.forEach((row, i) => {
      const line = this.#line(row);
      kept.add(line);
      this.columns.forEach((column, c) => this.#cell(line.cells[c], column, row));
      if (this.body.children[i] !== line.tr) this.body.insertBefore(line.tr, this.body.children[i] ?? null);
    });
    for (const [key, line] of this.#lines) {
      if (!kept.has(line)) (line.tr.remove(), this.#lines.delete(key));
    }
    this.fit.draw();
    this.more.hidden = shown.length === rows.length;
    say(this.more, `Shown are ${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}.`);
  }

  #line(row) {
    const key = this.key(row);
    let line = this.#lines.get(key);
    if (!line) {
      const cells = this.columns.map((column) =>
        el(column.name ? "th" : "td", column.name ? { scope: "row" } : { class: column.node ? "act" : null }),
      );
      line = { tr: el("tr", {}, ...cells), cells };
      this.#lines.set(key, line);
      this.columns.forEach((column, c) => column.node && cells[c].append(column.node(row)));
    }
    return line;
  }

  #cell(cell, column, row) {
    if (column.node) return;
    say(cell, textOf(column, row));
    const title = column.why?.(row) ?? (column.name ? textOf(column, row) : "");
    if (cell.title !== title) cell.title = title;
    const look = column.look?.(row) ?? "";
    if (cell.className !== look) cell.className = look;
  }

  #text(row) {
    return this.columns
      .map((column) => (column.node ? "" : textOf(column, row)))
      .join("\n")
      .toLowerCase();
  }

  #sorted(rows) {
    if (!this.#sort) return rows;
    const [column, way] = this.#sort;
    return rows.toSorted((one, two) => way * compared(column.of(one), column.of(two), way));
  }
}

const textOf = (column, row) => (column.text ? column.text(row) : String(column.of(row) ?? "–"));

/** Unknown values stand last, whichever way the rest is sorted. */
function compared(one, two, way) {
  if (one == null || two == null) return way * ((one == null) - (two == null));
  if (typeof one === "string") return one.localeCompare(two, "en", { numeric: true });
  return one - two;
}

/** A table that stays as it is; a row that is short ends in a text. */
export function plain(titles, rows, label) {
  const head = el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)));
  const cell = (text, row) =>
    row.length < titles.length
      ? el("td", { class: "wrap", colspan: String(titles.length - 1) }, text)
      : el("td", {}, text);
  const line = (row) =>
    el("tr", {}, el("th", { scope: "row" }, row[0]), ...row.slice(1).map((text) => cell(text, row)));
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.map(line)));
  const wide = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, table);
  const fit = new Fit(wide, table, [...titles.keys()], titles);
  return el("div", {}, el("div", { class: "row over" }, fit.button), wide);
}

/**
 * Hides the columns of a table that matter least until it is as wide as its place; a button shows all of them.
 * Columns of rank 0 stay, of the others those of the highest rank go first.
 */
class Fit {
  #hidden = new Set(); // places of columns
  #width = 0;

  constructor(wide, table, ranks, titles) {
    Object.assign(this, { wide, table, ranks, titles, all: false });
    this.button = button("", () => this.#turn(), { class: "small more", hidden: true });
    new ResizeObserver(() => this.wide.clientWidth !== this.#width && this.#measure()).observe(wide);
  }

  /** Rows came or changed. */
  draw() {
    if (!this.wide.clientWidth) return;
    if (!this.all && this.wide.scrollWidth > this.wide.clientWidth + 1) this.#measure();
    else this.#apply();
  }

  #turn() {
    this.all = !this.all;
    this.#measure();
  }

  /** Find out which columns have room; a table that is too wide has each as wide as it needs. */
  #measure() {
    this.#width = this.wide.clientWidth;
    if (!this.#width) return;
    this.#hidden.clear();
    this.#apply();
    let over = this.wide.scrollWidth - this.wide.clientWidth;
    const heads = this.table.tHead.rows[0].cells;
    const widths = Array.from(heads, (head) => head.getBoundingClientRect().width);
    const order = this.ranks
      .map((rank, place) => [rank, place])
      .filter(([rank]) => rank)
      .sort((one, two) => two[0] - one[0] || two[1] - one[1]);
    for (const [, place] of order) {
      if (over <= 1) break;
      over -= widths[place];
      this.#hidden.add(place);
    }
    this.#say();
    if (this.all) this.#hidden.clear();
    this.#apply();
  }

  #say() {
    const count = this.#hidden.size;
    this.button.hidden = !count;
    this.button.setAttribute("aria-expanded", String(this.all));
    this.button.title = [...this.#hidden].sort((a, b) => a - b).map((place) => this.titles[place]).join(", ");
    say(this.button, this.all ? "fewer columns" : `${count} more ${count > 1 ? "columns" : "column"}`);
  }

  #apply() {
    for (const row of this.table.rows) {
      if (row.cells.length < this.ranks.length) continue; // ends in a text
      for (let place = 0; place < row.cells.length; place++) {
        const hidden = this.#hidden.has(place);
        if (row.cells[place].hidden !== hidden) row.cells[place].hidden = hidden;
      }
    }
  }
}
