// Colours, textures and boxes on a canvas. Kinds of code differ by hue (orange and blue, which all eyes tell apart) and
// by more than it: kernel code is hatched, inlined code is pale, slanted and underlined with dots.

const THEMES = {
  light: {
    ink: "#23262b", soft: "#646a73", paper: "#fcfbf8", line: "#e4e0d7", accent: "#0b6670", mark: "#b0307f",
    user: [36, 82, 79], inlined: [40, 70, 91], kernel: [210, 58, 82], kernelInlined: [210, 56, 92],
    unresolved: [40, 5, 86], label: [186, 14, 88], hatch: "hsl(210 45% 66%)", crowd: "#ebe6da",
    heat: ["#f1eee6", "#dcebeb", "#9cc7ca", "#3d8f96", "#0a4750"],
  },
  dark: {
    ink: "#f0ece3", soft: "#9aa0a8", paper: "#15171a", line: "#2d3136", accent: "#6cc5cc", mark: "#f08ac4",
    user: [34, 46, 33], inlined: [36, 30, 22], kernel: [212, 42, 35], kernelInlined: [212, 32, 24],
    unresolved: [40, 4, 29], label: [186, 12, 25], hatch: "hsl(212 42% 50%)", crowd: "#2a2c2e",
    heat: ["#1d2023", "#1b2f32", "#265a61", "#3f929b", "#b4e8ea"],
  },
};

function themeNow() {
  return THEMES[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
}

// Modules of one kind differ a little in lightness, so that neighbours can be told apart.
function shade([hue, saturation, light], number) {
  const step = ((Math.imul(number + 1, 0x9e3779b1) >>> 28) % 5) - 2;
  return `hsl(${hue + step * 2} ${saturation}% ${light + step * 1.6}%)`;
}

function kindOf(flags) {
  if (flags & MARKER) return "marker";
  if (flags & KERNEL) return flags & INLINED ? "kernelInlined" : "kernel";
  if (flags & UNRESOLVED) return "unresolved";
  return flags & INLINED ? "inlined" : "user";
}

const hatches = new Map();

function hatchOf(color) {
  if (!hatches.has(color)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 7;
    const pen = tile.getContext("2d");
    pen.strokeStyle = color;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const shift of [-7, 0, 7]) {
      pen.moveTo(shift - 1, 8);
      pen.lineTo(shift + 8, -1);
    }
    pen.stroke();
    hatches.set(color, pen.createPattern(tile, "repeat"));
  }
  return hatches.get(color);
}

function fillBox(pen, theme, { kind, module, x, y, width, height }) {
  if (kind === "marker") {
    pen.strokeStyle = theme.soft;
    pen.setLineDash([2, 2]);
    if (width > 2) pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    pen.setLineDash([]);
    return;
  }
  pen.fillStyle = shade(theme[kind], kind === "label" ? 2 : module);
  pen.fillRect(x, y, width, height);
  const kernel = kind === "kernel" || kind === "kernelInlined";
  if (kernel && width > 2) {
    pen.fillStyle = hatchOf(theme.hatch);
    pen.fillRect(x, y, width, height);
  }
  if ((kind === "inlined" || kind === "kernelInlined") && width > 5) {
    pen.strokeStyle = theme.soft;
    pen.setLineDash([1.5, 2.5]);
    pen.beginPath();
    pen.moveTo(x, y + height - 0.5);
    pen.lineTo(x + width, y + height - 0.5);
    pen.stroke();
    pen.setLineDash([]);
  }
}

const SANS = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";
const FONTS = { plain: `12px ${SANS}`, slanted: `italic 12px ${SANS}`, strong: `600 12px ${SANS}` };

function fontOf(kind) {
  return FONTS[kind === "label" ? "strong" : kind === "inlined" || kind === "kernelInlined" ? "slanted" : "plain"];
}

// Widths of names, once measured.
const widths = new Map();

function widthOf(pen, text) {
  const key = `${pen.font}\n${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 50_000) widths.clear();
    width = pen.measureText(text.length > 400 ? text.slice(0, 400) : text).width;
    widths.set(key, width);
  }
  return width;
}

const shortNames = new Map();

function shortened(name) {
  if (!shortNames.has(name)) shortNames.set(name, shortName(name));
  return shortNames.get(name);
}

// The name as far as it fits: whole, short, or cut.
function fitted(pen, name, room) {
  if (widthOf(pen, name) <= room) return name;
  const short = shortened(name);
  const width = widthOf(pen, short);
  if (width <= room) return short;
  let length = Math.floor((Math.min(short.length, 400) * (room - 10)) / width);
  while (length > 1 && widthOf(pen, `${short.slice(0, length)}…`) > room) length--;
  return length > 1 ? `${short.slice(0, length)}…` : "";
}

// Size a canvas to its place, with the screen's own pixels; the pen draws in those of the page.
function fitCanvas(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
