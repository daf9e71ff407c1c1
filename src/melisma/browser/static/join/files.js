// Files that are chosen here, as arrays. They are read on this device and sent nowhere.

/** Samples at most, and bytes of one file: beyond them phones run out of memory. */
const MOST_BYTES = 1 << 28;

// numpy's types, the arrays that hold them, and their names in torch.
const TYPES = {
  "|u1": [Uint8Array, "uint8"],
  "|i1": [Int8Array, "int8"],
  "<i2": [Int16Array, "int16"],
  "<i4": [Int32Array, "int32"],
  "<i8": [BigInt64Array, "int64"],
  "<f4": [Float32Array, "float32"],
  "<f8": [Float64Array, "float64"],
};

/** Read the chosen files as {x, y}; `fields` are the task's arrays of a sample. */
export async function read(files, fields) {
  const npz = files.filter((file) => file.name.endsWith(".npz"));
  if (npz.length > 1 || (npz.length && files.length > 1)) throw new Error("Choose one .npz file, or images.");
  const own = npz.length ? await readNpz(npz[0]) : await readImages(files, fields);
  check(own, fields);
  return own;
}

function check({ x, y }, fields) {
  const wanted = fields.x.shape;
  if (x.shape.slice(1).join() !== wanted.join()) {
    throw new Error(`The samples are ${x.shape.slice(1).join(" × ")}, and the task has ${wanted.join(" × ")}.`);
  }
  if (!x.shape[0]) throw new Error("There are no samples in these files.");
  if (y && y.shape[0] !== x.shape[0]) throw new Error(`There are ${x.shape[0]} samples and ${y.shape[0]} targets.`);
  if (fields.y && !y) throw new Error("There are no targets (y) in this file.");
  for (const value of x.data) if (Number.isNaN(value)) throw new Error("There are missing values (NaN) in x.");
}

/** Read x.npy and y.npy out of an .npz, which is a zip archive. */
export async function readNpz(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than ${MOST_BYTES >> 20} MB: choose a smaller one.`);
  const members = await unzip(await file.arrayBuffer());
  if (!members.has("x.npy")) throw new Error(`${file.name} has no array named x.`);
  return { x: npy(members.get("x.npy"), "x"), y: members.has("y.npy") ? npy(members.get("y.npy"), "y") : undefined };
}

/** The members of a zip archive by name, by its central directory. */
async function unzip(buffer) {
  const view = new DataView(buffer);
  const bad = () => new Error("This is no whole .npz file.");
  let end = buffer.byteLength - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw bad();
  const members = new Map();
  let at = view.getUint32(end + 16, true);
  let left = MOST_BYTES;
  for (let n = view.getUint16(end + 10, true); n > 0; n--) {
    if (at + 46 > buffer.byteLength || view.getUint32(at, true) !== 0x02014b50) throw bad();
    const [method, size] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true)];
    const [nameLength, extra, comment] = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    const local = view.getUint32(at + 42, true);
    const name = new TextDecoder().decode(new Uint8Array(buffer, at + 46, nameLength));
    if (local + 30 > buffer.byteLength) throw bad();
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    if (start + size > buffer.byteLength) throw bad();
    if (name === "x.npy" || name === "y.npy") {
      const packed = new Uint8Array(buffer, start, size);
      const plain = method === 0 ? packed.slice().buffer : await inflated(packed, left);
      left -= plain.byteLength;
      members.set(name, plain);
    }
    at += 46 + nameLength + extra + comment;
  }
  return members;
}

/** Inflate, up to a number of bytes. */
async function inflated(packed, most) {
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const chunks = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) throw new Error(`This file has more than ${MOST_BYTES >> 20} MB in it: choose a smaller one.`);
    chunks.push(value);
  }
  return new Blob(chunks).arrayBuffer();
}

/** An array of a .npy file. */
function npy(buffer, name) {
  const bytes = new Uint8Array(buffer, 0, Math.min(buffer.byteLength, 12));
  const magic = String.fromCharCode(...bytes.slice(1, 6));
  if (bytes[0] !== 0x93 || magic !== "NUMPY") throw new Error(`${name} is no array of numpy.`);
  const view = new DataView(buffer);
  const [start, length] = bytes[6] === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)];
  const header = new TextDecoder().decode(new Uint8Array(buffer, start, length));
  const descr = /'descr': '([^']+)'/.exec(header)?.[1];
  const shape = /'shape': \(([\d, ]*)\)/.exec(header)?.[1].split(",").filter((part) => part.trim()).map(Number);
  if (/'fortran_order': True/.test(header)) throw new Error(`${name} is in Fortran's order: save np.ascontiguousarray(${name}).`);
  const [Kind, dtype] = TYPES[descr] ?? [];
  if (!Kind || !shape?.length) throw new Error(`${name} is of type ${descr ?? "unknown"}: save whole numbers or floats.`);
  const size = shape.reduce((product, part) => product * part, 1);
  const data = buffer.slice(start + length);
  if (data.byteLength < size * Kind.BYTES_PER_ELEMENT) throw new Error(`${name} was cut short.`);
  return narrow({ dtype, shape, data: new Kind(data, 0, size) });
}

/** Float64 as float32, as learners train; other types as they are. */
function narrow(array) {
  if (array.dtype !== "float64") return array;
  return { ...array, dtype: "float32", data: Float32Array.from(array.data) };
}

/** Images as samples; the class is the number that begins the folder's or the file's name. */
async function readImages(files, fields) {
  const images = files.filter((file) => file.type.startsWith("image/"));
  if (!images.length) throw new Error("There are no images and no .npz file among these.");
  const shape = fields.x.shape;
  if (shape.length < 2 || shape.length > 3) throw new Error(`The task's samples are ${shape.join(" × ")}, which no image is: give an .npz.`);
  const [channels, height, width] = shape.length === 3 ? shape : [1, ...shape];
  if (channels !== 1 && channels !== 3) throw new Error(`The task's images have ${channels} channels: give an .npz.`);
  const size = channels * height * width;
  if (images.length * size > MOST_BYTES) throw new Error("These are more images than fit: choose fewer.");
  const whole = fields.x.dtype === "uint8";
  const data = whole ? new Uint8Array(images.length * size) : new Float32Array(images.length * size);
  const classes = new BigInt64Array(images.length);
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  for (const [n, image] of images.entries()) {
    classes[n] = BigInt(classOf(image));
    let bitmap;
    try {
      bitmap = await createImageBitmap(image, { resizeWidth: width, resizeHeight: height });
    } catch {
      throw new Error(`${image.name} is no image that this browser reads: leave it out.`);
    }
    context.drawImage(bitmap, 0, 0);
    bitmap.close();
    const pixels = context.getImageData(0, 0, width, height).data;
    for (let p = 0; p < height * width; p++) {
      const [r, g, b] = [pixels[4 * p], pixels[4 * p + 1], pixels[4 * p + 2]];
      const values = channels === 3 ? [r, g, b] : [Math.round(0.299 * r + 0.587 * g + 0.114 * b)];
      values.forEach((value, c) => (data[n * size + c * height * width + p] = whole ? value : value / 255));
    }
  }
  return {
    x: { dtype: whole ? "uint8" : "float32", shape: [images.length, ...shape], data },
    y: { dtype: "int64", shape: [images.length], data: classes },
  };
}

function classOf(file) {
  const folder = (file.webkitRelativePath || "").split("/").at(-2) ?? "";
  const number = /^(\d{1,6})(?!\d)/.exec(folder)?.[1] ?? /^(\d{1,6})(?!\d)/.exec(file.name)?.[1];
  if (number === undefined) {
    throw new Error(`${file.name} has no class: let its folder's or its own name begin with the number of the class, as 3_mine.png.`);
  }
  return number;
}
