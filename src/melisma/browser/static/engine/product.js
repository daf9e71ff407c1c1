// Matrix products in WebAssembly: C = A·B, or C += A·B, of float32.
//
// The module is assembled here when the page is opened: two functions, in 128-bit
// SIMD, whose text is below. A panel of eight columns of B is packed, so that it lies
// in the first-level cache in the order in which it is read; then four rows of C at a
// time are kept in registers. A may have any strides, and so be transposed. Where the
// browser has relaxed SIMD a step is one fused multiply-add instead of two operations.

const [I32, V128, EMPTY] = [0x7f, 0x7b, 0x40];
const BLOCK = [0x02, EMPTY], LOOP = [0x03, EMPTY], IF = [0x04, EMPTY];
const ELSE = 0x05, END = 0x0b, ADD = 0x6a, SUB = 0x6b, MUL = 0x6c, LESS = 0x48;
const PANEL = 8; // columns, in two vectors

function leb(n) {
  const bytes = [];
  for (;;) {
    const byte = n & 0x7f;
    n >>= 7;
    if ((n === 0 && !(byte & 0x40)) || (n === -1 && byte & 0x40)) return [...bytes, byte];
    bytes.push(byte | 0x80);
  }
}

const unsigned = (n) => (n < 0x80 ? [n] : [(n & 0x7f) | 0x80, ...unsigned(n >>> 7)]);
const sized = (bytes) => [...unsigned(bytes.length), ...bytes];
const section = (id, items) => [id, ...sized([...unsigned(items.length), ...items.flat()])];
const get = (local) => [0x20, local];
const set = (local) => [0x21, local];
const constant = (n) => [0x41, ...leb(n)];
const branch = (depth) => [0x0c, depth];
const branchIf = (depth) => [0x0d, depth];
const simd = (code, ...rest) => [0xfd, ...unsigned(code), ...rest];
const load = (offset) => simd(0x00, 2, ...unsigned(offset));
const splat = () => simd(0x09, 2, 0);
const store = (offset) => simd(0x0b, 2, ...unsigned(offset));
const zero = () => simd(0x0c, ...new Array(16).fill(0));
const plus = () => simd(0xe4);
const times = () => simd(0xe6);
const fused = () => simd(0x105); // relaxed: a·b + c
const increase = (local, by) => [...get(local), ...by, ADD, ...set(local)];

// panel(a, row, column, b, c, width, rows, depth, add): C's eight columns at c, of
// `rows` rows `width` bytes apart, are A·B; A's elements are `row` and `column` apart.
function panel(madd) {
  const [a, row, column, b, c, width, rows, depth, add] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const [k, pb, p0, out] = [9, 10, 11, 15]; // p0 … p3
  const [b0, b1, t, sum] = [16, 17, 18, 19]; // two sums for each of four rows

  function tile(many) {
    const each = [...new Array(many).keys()];
    const pointers = each.flatMap((r) => [
      ...get(r ? p0 + r - 1 : a), ...(r ? [...get(row), ADD] : []), ...set(p0 + r),
    ]);
    const begin = (value) => [
      ...get(c), ...set(out),
      ...each.flatMap((r) => [
        ...value(0), ...set(sum + 2 * r), ...value(16), ...set(sum + 2 * r + 1),
        ...increase(out, get(width)),
      ]),
    ];
    const step = (r, half) => [
      ...(madd
        ? [...get(t), ...get(b0 + half), ...get(sum + 2 * r + half), ...fused()]
        : [...get(sum + 2 * r + half), ...get(t), ...get(b0 + half), ...times(), ...plus()]),
      ...set(sum + 2 * r + half),
    ];
    return [
      ...BLOCK, ...LOOP,
      ...get(rows), ...constant(many), LESS, ...branchIf(1),
      ...pointers,
      ...get(add), ...IF,
      ...begin((offset) => [...get(out), ...load(offset)]),
      ELSE,
      ...begin(() => zero()),
      END,
      ...get(b), ...set(pb), ...get(depth), ...set(k),
      ...LOOP,
      ...get(pb), ...load(0), ...set(b0), ...get(pb), ...load(16), ...set(b1),
      ...each.flatMap((r) => [
        ...get(p0 + r), ...splat(), ...set(t), ...step(r, 0), ...step(r, 1),
        ...increase(p0 + r, get(column)),
      ]),
      ...increase(pb, constant(4 * PANEL)),
      ...get(k), ...constant(1), SUB, 0x22, k, ...branchIf(0),
      END,
      ...each.flatMap((r) => [
        ...get(c), ...get(sum + 2 * r), ...store(0),
        ...get(c), ...get(sum + 2 * r + 1), ...store(16),
        ...increase(c, get(width)),
      ]),
      ...increase(a, [...get(row), ...constant(many), MUL]),
      ...get(rows), ...constant(many), SUB, ...set(rows),
      ...branch(0), END, END,
    ];
  }
  const locals = [2, 7, I32, 11, V128];
  return sized([...locals, ...tile(4), ...tile(1), END]);
}

// pack(b, row, column, out, depth): eight columns of B side by side, `depth` rows. It
// is read in vectors where `column` is four bytes.
function pack() {
  const [b, row, column, out, depth] = [0, 1, 2, 3, 4];
  const p = 5;
  const through = (copy) => [
    ...LOOP, ...copy,
    ...increase(b, get(row)), ...increase(out, constant(4 * PANEL)),
    ...get(depth), ...constant(1), SUB, 0x22, depth, ...branchIf(0), END,
  ];
  const scalars = [...new Array(PANEL).keys()].flatMap((c) => [
    ...get(out), ...get(p), 0x2a, 2, 0, 0x38, 2, ...unsigned(4 * c),
    ...increase(p, get(column)),
  ]);
  return sized([
    1, 1, I32,
    ...get(column), ...constant(4), 0x46, ...IF,
    ...through([0, 16].flatMap((o) => [...get(out), ...get(b), ...load(o), ...store(o)])),
    ELSE,
    ...through([...get(b), ...set(p), ...scalars]),
    END, END,
  ]);
}

function assembled(madd) {
  const text = (name) => sized([...new TextEncoder().encode(name)]);
  const type = (count) => [0x60, ...sized(new Array(count).fill(I32)), 0];
  return new Uint8Array([
    0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, [type(9), type(5)]),
    ...section(2, [[...text(""), ...text("memory"), 0x02, 0x00, 0]]),
    ...section(3, [[0], [1]]),
    ...section(7, [[...text("panel"), 0, 0], [...text("pack"), 0, 1]]),
    ...section(10, [panel(madd), pack()]),
  ]);
}

// Return the compiled module; null where the browser has no SIMD.
export async function compiled() {
  for (const madd of [true, false]) {
    const bytes = assembled(madd);
    if (WebAssembly.validate(bytes)) return WebAssembly.compile(bytes);
  }
  return null;
}

// The same in plain JavaScript, where there is no SIMD. Places are bytes.
function plain(memory) {
  const f = new Float32Array(memory.buffer);
  return {
    panel(a, row, column, b, c, width, rows, depth, add) {
      [a, row, column, b, c, width] = [a >> 2, row >> 2, column >> 2, b >> 2, c >> 2, width >> 2];
      for (let r = 0; r < rows; r++, a += row, c += width) {
        for (let j = 0; j < PANEL; j++) {
          let sum = add ? f[c + j] : 0;
          for (let k = 0; k < depth; k++) sum += f[a + k * column] * f[b + k * PANEL + j];
          f[c + j] = sum;
        }
      }
    },
    pack(b, row, column, out, depth) {
      [b, row, column, out] = [b >> 2, row >> 2, column >> 2, out >> 2];
      for (let k = 0; k < depth; k++)
        for (let j = 0; j < PANEL; j++) f[out + k * PANEL + j] = f[b + k * row + j * column];
    },
  };
}

const DEEP = 512, HIGH = 512; // rows of a packed panel, and of C where it is narrow
export const SCRATCH = PANEL * (DEEP + HIGH); // floats

// Return product(A, B, C, rows, columns, depth, add), over a memory whose first
// SCRATCH floats are its own. A, B and C are [place, row stride, column stride] in
// floats; C's columns lie side by side.
export async function productOver(memory, module) {
  const exported = module
    ? (await WebAssembly.instantiate(module, { "": { memory } })).exports
    : plain(memory);
  const f = new Float32Array(memory.buffer);
  const tile = PANEL * DEEP;

  function packNarrow([b, row, column], depth, many) {
    f.fill(0, 0, depth * PANEL);
    for (let k = 0; k < depth; k++)
      for (let j = 0; j < many; j++) f[k * PANEL + j] = f[b + k * row + j * column];
  }

  function narrow(A, c, width, rows, many, depth, add) {
    const [a, row, column] = A;
    for (let first = 0; first < rows; first += HIGH) {
      const high = Math.min(HIGH, rows - first);
      exported.panel(4 * (a + first * row), 4 * row, 4 * column, 0, 4 * tile, 4 * PANEL, high, depth, 0);
      for (let r = 0; r < high; r++) {
        const to = c + (first + r) * width, from = tile + r * PANEL;
        if (add) for (let j = 0; j < many; j++) f[to + j] += f[from + j];
        else for (let j = 0; j < many; j++) f[to + j] = f[from + j];
      }
    }
  }

  return function product(A, B, C, rows, columns, depth, add = false) {
    const [a, row, column] = A, [b, down, across] = B, [c, width] = C;
    for (let k = 0; k < depth; k += DEEP) {
      const deep = Math.min(DEEP, depth - k), more = add || k > 0;
      for (let j = 0; j < columns; j += PANEL) {
        const many = Math.min(PANEL, columns - j);
        const from = b + k * down + j * across;
        if (many === PANEL) {
          exported.pack(4 * from, 4 * down, 4 * across, 0, deep);
          exported.panel(4 * (a + k * column), 4 * row, 4 * column, 0, 4 * (c + j), 4 * width, rows, deep, more ? 1 : 0);
        } else {
          packNarrow([from, down, across], deep, many);
          narrow([a + k * column, row, column], c + j, width, rows, many, deep, more);
        }
      }
    }
  };
}
