// The flame graph of a comparison on a canvas: red where cost rose, blue where it fell, hatched where it is gone.

const ROW = 19;
const LEAST_WIDTH = 0.4;

const CHANGES = {
  light: { up: [14, 78], down: [212, 68], light: [94, 58], same: "#ece8df", gone: "hsl(212 45% 60%)", fresh: "#a3351b" },
  dark: { up: [14, 62], down: [212, 52], light: [22, 42], same: "#2a2d31", gone: "hsl(212 42% 55%)", fresh: "#ff9d80" },
};

function changesNow() {
  return CHANGES[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
}

// Full colour from half as much more or less on.
function colorOf(change, colors) {
  if (!change.matters) return colors.same;
  const strength = Math.min(1, Math.abs(change.relative) / 0.5);
  const [hue, saturation] = change.delta > 0 ? colors.up : colors.down;
  const [pale, full] = colors.light;
  return `hsl(${hue} ${saturation}% ${pale + (full - pale) * (0.25 + 0.75 * strength)}%)`;
}

class Graph {
  constructor(canvas, pane, tree, on) {
    Object.assign(this, { canvas, pane, tree, on, zoomed: 0, at: -1, matches: null });
    canvas.addEventListener("mousemove", (event) => this.point(this.hit(event.offsetX, event.offsetY), event.clientX, event.clientY));
    canvas.addEventListener("mouseleave", () => this.point(-1));
    canvas.addEventListener("click", (event) => this.zoom(this.hit(event.offsetX, event.offsetY)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(pane);
  }

  show(mode) {
    const path = this.view ? this.view.pathOf(this.zoomed).map((i) => this.view.node[i]) : [0];
    this.view = compareView(this.tree, mode);
    this.zoomed = 0;
    const wanted = new Set(path);
    for (let i = 0; i < this.view.count; i++) if (wanted.has(this.view.node[i])) this.zoomed = i;
    this.at = -1;
    this.draw();
  }

  draw() {
    const { view, canvas, pane, zoomed } = this;
    if (!view || pane.clientWidth === 0) return;
    this.width = pane.clientWidth;
    const pen = fitCanvas(canvas, this.width, view.height * ROW);
    pen.textBaseline = "middle";
    for (const i of view.pathOf(zoomed).slice(0, -1)) this.box(pen, i, 0, this.width, true);
    const scale = this.width / (view.total[zoomed] || 1);
    for (let i = zoomed; i < view.end[zoomed];) {
      const wide = view.total[i] * scale;
      if (wide < LEAST_WIDTH && i !== zoomed) {
        i = view.end[i];
        continue;
      }
      this.box(pen, i, (view.start[i] - view.start[zoomed]) * scale, wide, false);
      i++;
    }
    canvas.dataset.drawn = String(Number(canvas.dataset.drawn ?? 0) + 1);
  }

  box(pen, i, x, wide, passed) {
    const theme = themeNow();
    const colors = changesNow();
    const change = changeOf(this.tree, this.view.node[i]);
    const y = this.view.depth[i] * ROW;
    const width = Math.max(wide > 2 ? wide - 1 : wide, 0.5);
    const name = this.name(i);
    pen.globalAlpha = this.matches && !this.matches(name) ? 0.3 : passed ? 0.6 : 1;
    pen.fillStyle = colorOf(change, colors);
    pen.fillRect(x, y, width, ROW - 1);
    if (change.kind === "gone" && width > 2) {
      pen.fillStyle = hatchOf(colors.gone);
      pen.fillRect(x, y, width, ROW - 1);
    }
    if (change.kind === "new" && width > 3) {
      pen.strokeStyle = colors.fresh;
      pen.strokeRect(x + 0.75, y + 0.75, width - 1.5, ROW - 2.5);
    }
    if (wide > 26) {
      pen.font = fontOf("plain");
      pen.fillStyle = theme.ink;
      const text = fitted(pen, `${name}  ${changeText(change)}`, wide - 9) || fitted(pen, name, wide - 9);
      if (text) pen.fillText(text, x + 4, y + ROW / 2);
    }
    pen.globalAlpha = 1;
    if (i === this.at) {
      pen.strokeStyle = theme.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, Math.max(1, width - 2), ROW - 3);
      pen.lineWidth = 1;
    }
  }

  name(i) {
    const frame = this.view.frame[i];
    return frame < 0 ? "All" : this.tree.head.strings[frame];
  }

  hit(x, y) {
    const { view, zoomed } = this;
    const depth = Math.floor(y / ROW);
    if (!view || depth < 0 || depth >= view.height) return -1;
    if (depth <= view.depth[zoomed]) return view.pathOf(zoomed)[depth] ?? -1;
    const value = view.start[zoomed] + (x / this.width) * view.total[zoomed];
    let box = zoomed;
    while (view.depth[box] < depth) {
      const child = view.childrenOf(box).find((i) => value >= view.start[i] && value < view.start[i] + view.total[i]);
      if (child === undefined) return -1;
      box = child;
    }
    return box;
  }

  point(box, x, y) {
    if (box !== this.at) {
      this.at = box;
      this.draw();
    }
    this.on.point(box < 0 ? null : { name: this.name(box), node: this.view.node[box] }, x, y);
  }

  zoom(box) {
    if (box < 0) return;
    this.zoomed = box;
    this.draw();
    this.on.zoomed(this.view.pathOf(box).map((i) => ({ box: i, name: this.name(i) })));
  }

  key(event) {
    const { view } = this;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.at < 0 ? this.zoomed : this.at;
    const siblings = view.parentOf(at) < 0 ? [at] : view.childrenOf(view.parentOf(at));
    const widest = view.childrenOf(at).reduce((best, i) => (best < 0 || view.total[i] > view.total[best] ? i : best), -1);
    const moves = {
      ArrowLeft: siblings[siblings.indexOf(at) - 1] ?? at,
      ArrowRight: siblings[siblings.indexOf(at) + 1] ?? at,
      ArrowUp: Math.max(0, view.parentOf(at)),
      ArrowDown: widest < 0 ? at : widest,
    };
    if (event.key in moves) this.point(moves[event.key]);
    else if (event.key === "Enter") this.zoom(at);
    else if (event.key === "Escape") this.zoom(Math.max(0, view.parentOf(this.zoomed)));
    else return;
    event.preventDefault();
  }
}
