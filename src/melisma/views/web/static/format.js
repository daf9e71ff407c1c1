// Numbers as they are printed, and colours: those of schemes and costs are melisma/plots.py's.

const DASH = "–";

/** A number with `digits` after the point, or a dash where it is not known. */
export function number(value, digits = 0, unit = "") {
  if (value == null || Number.isNaN(value)) return DASH;
  const text = value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return text + unit;
}

/** A number without a unit, with three digits after the point or as many as tell something. */
export const plainNumber = (value) =>
  number(value, value ? Math.min(12, Math.max(3, 2 - Math.floor(Math.log10(Math.abs(value))))) : 3);

export const percent = (share, digits = 1) => number(share == null ? null : 100 * share, digits, " %");

/** A metric's value, with its unit. */
export const metricText = (metric, value, digits = 1) =>
  metric.percent ? percent(value, digits) : plainNumber(value);

/** Seconds, with as many digits as tell something. */
export function seconds(value) {
  if (value == null) return DASH;
  const size = Math.abs(value);
  return number(value, size < 1 ? 3 : size < 100 ? 2 : 0, " s");
}

/** Seconds that somebody chose, as they would write them: 55 s, 0.5 s. */
export const chosen_s = (value) =>
  value == null ? DASH : `${value.toLocaleString("en", { maximumFractionDigits: 3 })} s`;

/** A span of time to read at a glance: 58 s, 12 min 4 s, 3 h 20 min. */
export function span(value) {
  if (value == null) return DASH;
  const whole = Math.max(0, Math.round(value));
  if (whole < 120) return `${value < 10 ? Math.max(0, value).toFixed(1) : whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** A number in units of a thousand, with one digit after the point where it is short. */
function scaled(value, units, isWhole) {
  if (value == null) return DASH;
  let rank = 0;
  while (value >= 1000 && rank < units.length - 1) ((value /= 1000), rank++);
  return number(value, value < 100 && (rank || !isWhole) ? 1 : 0, ` ${units[rank]}`);
}

export const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"], true);
export const joules = (value) => scaled(value, ["J", "kJ", "MJ", "GJ"], false);

/** A name, cut if it is long. */
export const short = (name, most = 20) => (name.length <= most ? name : `${name.slice(0, most - 1)}…`);

export const mean = (values) =>
  values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;

export const DOWNLOAD = "#56B4E9";
export const TRAINING = "#0072B2";
export const UPLOAD = "#E69F00";
export const WHOLE = "#7F8FA6";
export const LOST = "#D55E00";
export const SITTING = "#AAAAAA";
export const COUNTED = "#009E73";

/** Of tasks, in their order. */
const TASKS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#332288"];
export const taskColour = (task) => seen(TASKS[task % TASKS.length]);

/** Of learners, in their order; where there are more, hues as far apart as they can be. */
const LEARNERS = [...TASKS.slice(0, 6), "#AA4499", "#117733", "#999933", "#88CCEE", "#CC6677", "#999999"];
export const learnerColour = (place, count) =>
  count <= LEARNERS.length
    ? seen(LEARNERS[place])
    : `hsl(${Math.round(137.508 * place) % 360} 65% ${isDark() ? 62 : 42}%)`;

/** Of a fog's costs, and of what becomes of its data. */
export const COSTS = { process: "#0072B2", transfer: "#E69F00", error: "#D55E00" };
export const FATES = { kept: "#0072B2", sent: "#E69F00", discarded: "#D55E00" };

const SCHEMES = {
  csa: "#0072B2",
  "csa-strict": "#56B4E9",
  "csa-options": "#44AA99",
  "csa-relaxed": "#332288",
  "csa-sai": "#88CCEE",
  "csa-testbed": "#999999",
  sync: "#009E73",
  eta: "#D55E00",
  dab: "#CC79A7",
  "dab-adaptive": "#882255",
  med: "#0072B2",
  mmtt: "#D55E00",
  "med-probe": "#009E73",
  "med-learned": "#56B4E9",
  rmed: "#CC79A7",
  coded: "#009E73",
  "coded:uncoded": "#999999",
  "coded:fractional": "#E69F00",
  "coded:cyclic": "#D55E00",
  "coded:hetero": "#0072B2",
  "coded:two-stage": "#009E73",
  fog: "#0072B2",
  "fog:rolling": "#0072B2",
  "fog:windows": "#009E73",
  "fog:alone": "#999999",
  "fog:federated": "#D55E00",
  "fog:central": "#CC79A7",
};

/** A scheme's colour; one that is not ours, or is black on paper, is as the text is. */
export const schemeColour = (scheme) => seen(SCHEMES[scheme] ?? ink("--ink"));

let inks = { theme: null };

/** A colour of the stylesheet; asking the browser for each mark would take too long. */
export function ink(name) {
  const { theme } = document.documentElement.dataset;
  if (inks.theme !== theme) inks = { theme };
  return (inks[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}

/** Two of the colours are too dark to be seen in the dark. */
function seen(colour) {
  const lighter = { "#332288": "#9A8CFF", "#0072B2": "#3D9DDB" };
  return (isDark() && lighter[colour]) || colour;
}

export const isDark = () => document.documentElement.dataset.theme === "dark";

let paper = false;

/** Have something drawn as on paper: in light colours, and in a font that is everywhere. */
export function onPaper(make) {
  const { dataset } = document.documentElement;
  const { theme } = dataset;
  try {
    paper = true;
    dataset.theme = "light";
    return make();
  } finally {
    paper = false;
    dataset.theme = theme;
  }
}

export const font = (size = 12) =>
  `${size}px ${paper ? "Helvetica, Arial, sans-serif" : "system-ui, sans-serif"}`;

/** From pale to strong, for shares of 0 to 1. */
export function ramp(share) {
  const [from, to] = isDark()
    ? [
        [32, 44, 60],
        [92, 178, 236],
      ]
    : [
        [226, 238, 247],
        [0, 90, 150],
      ];
  const part = Math.min(1, Math.max(0, share));
  return `rgb(${from.map((low, i) => Math.round(low + part * (to[i] - low))).join(", ")})`;
}

/** A colour as a pixel of a picture: its four bytes, alpha first. */
export function pixel(colour) {
  const [red, green, blue] = colour.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16))
    : colour.match(/\d+/g).map(Number);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** `count` shades from pale to strong, made once a theme. */
export function shades(count) {
  const { theme } = document.documentElement.dataset;
  const key = `${theme} ${count}`;
  return (made[key] ??= Array.from({ length: count }, (_, i) => ramp(0.08 + (0.92 * i) / (count - 1))));
}

const made = {};
