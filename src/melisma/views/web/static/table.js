// Tables that sort and filter, keep their place, and touch only what changed.

import { button, el, say } from "./dom.js";

/**
 * Columns are {title, of(row) → value, text?(row) → string, name?: true, node?(row) → element}.
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
    const input = el("input", {
      type: "search",
      placeholder: "filter",
      "aria-label": `filter ${label}`,
      oninput: () => ((this.wanted = input.value.trim().toLowerCase()), this.draw(this.rows)),
    });
    this.root = el(
      "div",
      {},
      filter ? el("div", { class: "row" }, input) : null,
      el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, table),
      this.more,
    );
  }

  #head(column) {
    const head = el("th", { scope: "col", "aria-sort": "none" });
    head.append(button(column.title, () => this.#turn(column), { title: column.hint }));
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
    this.more.hidden = shown.length === rows.length;
    say(this.more, `Shown are ${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}.`);
  }

  #line(row) {
    const key = this.key(row);
    let line = this.#lines.get(key);
    if (!line) {
      const cells = this.columns.map((column) =>
        el(column.name ? "th" : "td", column.name ? { scope: "row" } : {}),
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
export function plain(titles, rows) {
  const head = el("tr", {}, ...titles.map((title) => el("th", { scope: "col" }, title)));
  const cell = (text, row) =>
    row.length < titles.length
      ? el("td", { class: "wrap", colspan: String(titles.length - 1) }, text)
      : el("td", {}, text);
  const line = (row) =>
    el("tr", {}, el("th", { scope: "row" }, row[0]), ...row.slice(1).map((text) => cell(text, row)));
  return el(
    "div",
    { class: "wide", tabindex: "0" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.map(line))),
  );
}
