// Numbers and names as people read them. Knows no document.

const percentFormat = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const countFormat = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function share(part, whole) {
  return whole > 0 ? `${percentFormat.format((part / whole) * 100)} %` : "–";
}

function scaled(value, steps) {
  let [size, unit] = steps[0];
  for (const [nextSize, nextUnit] of steps) {
    if (value >= nextSize) [size, unit] = [nextSize, nextUnit];
  }
  const number = value / size;
  const digits = size === 1 || number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return `${number.toFixed(digits)} ${unit}`;
}

const TIME_STEPS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"], [6e10, "min"], [3.6e12, "h"]];
const BYTE_STEPS = [[1, "B"], [1024, "KiB"], [1024 ** 2, "MiB"], [1024 ** 3, "GiB"], [1024 ** 4, "TiB"]];

function amount(value, unit) {
  if (value === 0) return "0";
  if (unit === "ns") return scaled(value, TIME_STEPS);
  if (unit === "bytes") return scaled(value, BYTE_STEPS);
  return countFormat.format(value);
}

// The same without zeros behind the point.
function plainly(value, unit) {
  return amount(value, unit).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}

function exactly(value, unit) {
  return `${countFormat.format(value)} ${unit}`;
}

function seconds(ns) {
  const value = ns / 1e9;
  if (value < 120) return `${+value.toFixed(3)} s`;
  const rest = String(+(value % 60).toFixed(1));
  return `${Math.floor(value / 60)}:${rest.split(".")[0].length < 2 ? `0${rest}` : rest} min`;
}

// A name without what stands in angle brackets, and its last two parts.
function shortName(name) {
  let depth = 0;
  let bare = "";
  for (let i = 0; i < name.length; i++) {
    const c = name[i];
    // An operator or an arrow is no bracket; nor is one that begins the name.
    if (c === "<" && i > 0 && !bare.endsWith("operator")) depth++;
    else if (c === ">" && depth > 0 && name[i - 1] !== "-") depth--;
    else if (depth === 0) bare += c;
  }
  const open = bare.indexOf("(", 1);
  const head = open > 0 && !bare.startsWith("(") ? bare.slice(0, open) : bare;
  const parts = head.split("::").filter((part) => part !== "");
  return parts.length > 2 ? parts.slice(-2).join("::") : head;
}

function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

function threadLabel(thread, several) {
  const host = several ? `, archive ${thread.archive + 1}` : "";
  return `${thread.comm || "[unknown]"} (tid ${thread.tid}, pid ${thread.pid}${host})`;
}

function processLabel(thread, several) {
  const host = several ? `, archive ${thread.archive + 1}` : "";
  return `${thread.process || "[unknown]"} (pid ${thread.pid}${host})`;
}

// What to look for, or null where it is no regular expression.
function matcher(text) {
  const regex = /^\/(.+?)\/?$/.exec(text);
  if (regex) {
    try {
      const compiled = new RegExp(regex[1], "i");
      return (name) => compiled.test(name);
    } catch {
      return null;
    }
  }
  const wanted = text.toLowerCase();
  return (name) => name.toLowerCase().includes(wanted);
}
