// SHA-256, by the browser where the page is secure, else here: SubtleCrypto is missing on
// plain HTTP.

const K = new Uint32Array(64);
const START = new Uint32Array(8);
{
  // The first 32 bits of the fractional parts of the roots of the first primes.
  const fraction = (x) => Math.floor((x - Math.floor(x)) * 2 ** 32);
  let found = 0;
  for (let n = 2; found < 64; n++) {
    let isPrime = true;
    for (let i = 2; i * i <= n; i++) if (n % i === 0) isPrime = false;
    if (!isPrime) continue;
    if (found < 8) START[found] = fraction(Math.sqrt(n));
    K[found++] = fraction(Math.cbrt(n));
  }
}

/** Return the SHA-256 of parts, one after another, in hexadecimal. */
export async function sha256(parts) {
  const data = joined(parts);
  if (!globalThis.crypto?.subtle) return plainSha256([data]);
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", data)));
}

/** The same without SubtleCrypto. */
export function plainSha256(parts) {
  const data = joined(parts);
  const state = START.slice();
  const whole = data.length - (data.length % 64);
  const words = new Uint32Array(64);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  for (let at = 0; at < whole; at += 64) block(state, view, at, words);
  const rest = data.subarray(whole);
  const last = new Uint8Array(rest.length < 56 ? 64 : 128);
  last.set(rest);
  last[rest.length] = 0x80;
  const end = new DataView(last.buffer);
  end.setBigUint64(last.length - 8, 8n * BigInt(data.length));
  for (let at = 0; at < last.length; at += 64) block(state, end, at, words);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setUint32(4 * i, word));
  return hex(new Uint8Array(digest.buffer));
}

function block(state, view, at, w) {
  for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15];
    const y = w[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((value, i) => {
    state[i] = (state[i] + value) | 0;
  });
}

function joined(parts) {
  if (parts.length === 1) return parts[0];
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
