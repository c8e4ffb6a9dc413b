// One picture of a view: boxes as wide as their weight. Draws only what can be seen, so that size does not matter.

const ROW = 19;
// Narrower boxes, in pixels, are not drawn.
const LEAST_WIDTH = 0.4;

class FlameGraph {
  // `up`: the root is at the bottom. `on`: zoom(box), sandwich(box), hover(box or -1, place).
  constructor(pane, canvas, profile, on) {
    Object.assign(this, { pane, canvas, profile, on, up: true, view: null, zoomed: 0, at: -1, matches: null, lit: -1 });
    this.space = document.createElement("div");
    this.space.className = "space";
    pane.append(this.space);
    this.wanted = false;
    new ResizeObserver(() => this.show()).observe(pane);
    pane.addEventListener("scroll", () => this.ask());
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.hover(-1));
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.hover(-1));
  }

  set(view, zoomed) {
    const same = this.view === view && this.zoomed === zoomed;
    this.view = view;
    this.zoomed = zoomed;
    if (!same) this.at = -1;
    this.show();
    if (!same) this.pane.scrollTop = this.up ? this.pane.scrollHeight : 0;
  }

  // How many rows the boxes take that are wide enough to be seen.
  rows(width) {
    const { view, zoomed } = this;
    const least = (LEAST_WIDTH / width) * view.total[zoomed];
    let deepest = view.depth[zoomed];
    for (let i = zoomed; i < view.end[zoomed];) {
      if (view.total[i] < least) {
        i = view.end[i];
        continue;
      }
      if (view.depth[i] > deepest) deepest = view.depth[i];
      i++;
    }
    return deepest + 1;
  }

  show() {
    if (!this.view || this.pane.clientWidth === 0) return;
    this.width = this.pane.clientWidth;
    this.deep = this.rows(this.width);
    const height = Math.min(this.pane.clientHeight, Math.max(ROW, this.deep * ROW));
    this.height = height;
    // The canvas is as high as what is seen of it, and stays in sight while the space behind it scrolls.
    this.space.style.height = `${Math.max(0, this.deep * ROW - height)}px`;
    this.ask();
  }

  ask() {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => {
      this.wanted = false;
      if (this.view) this.draw(this.width, this.height, this.pane.scrollTop);
    });
  }

  top(depth, scrolled) {
    return (this.up ? this.deep - 1 - depth : depth) * ROW - scrolled;
  }

  draw(width, height, scrolled) {
    const { view, zoomed, canvas } = this;
    const pen = fitCanvas(canvas, width, height);
    const theme = themeNow();
    pen.textBaseline = "middle";
    for (const i of view.pathOf(zoomed).slice(0, -1)) {
      this.box(pen, theme, i, 0, this.top(view.depth[i], scrolled), width, true);
    }
    const scale = width / (view.total[zoomed] || 1);
    const from = view.start[zoomed];
    // Where the boxes begin, at each depth, that are too narrow and lie side by side.
    const narrow = [];
    for (let i = zoomed; i < view.end[zoomed];) {
      const wide = view.total[i] * scale;
      if (wide < LEAST_WIDTH && i !== zoomed) {
        this.crowd(pen, theme, narrow, { depth: view.depth[i], x: (view.start[i] - from) * scale, wide, scrolled, height });
        i = view.end[i];
        continue;
      }
      const y = this.top(view.depth[i], scrolled);
      if (y > -ROW && y < height) this.box(pen, theme, i, (view.start[i] - from) * scale, y, wide, false);
      i++;
    }
    this.canvas.dataset.drawn = String(Number(this.canvas.dataset.drawn ?? 0) + 1);
  }

  // Boxes too narrow to be seen, as a pale strip where many lie side by side.
  crowd(pen, theme, narrow, { depth, x, wide, scrolled, height }) {
    const held = narrow[depth];
    const beside = held !== undefined && Math.abs(held.end - x) < 0.01;
    narrow[depth] = { start: beside ? held.start : x, drawn: beside ? held.drawn : x, end: x + wide };
    const run = narrow[depth];
    if (run.end - run.start < 1) return;
    const y = this.top(depth, scrolled);
    if (y > -ROW && y < height) {
      pen.fillStyle = theme.crowd;
      pen.fillRect(run.drawn, y, run.end - run.drawn, ROW - 1);
    }
    run.drawn = run.end;
  }

  box(pen, theme, i, x, y, wide, passed) {
    const frame = this.view.frame[i];
    const { profile } = this;
    const kind = frame < 0 ? "label" : kindOf(profile.flags[frame]);
    const width = Math.max(wide > 2 ? wide - 1 : wide, 0.5);
    const height = ROW - 1;
    const matched = frame >= 0 && this.matches !== null && this.matches[frame] === 1;
    const lit = frame >= 0 && profile.functionOf[frame] === this.lit;
    pen.globalAlpha = lit ? 1 : this.matches !== null && !matched ? 0.4 : passed ? 0.6 : 1;
    fillBox(pen, theme, { kind, module: frame < 0 ? 0 : profile.module[frame], x, y, width, height });
    if (matched) {
      pen.fillStyle = theme.mark;
      pen.fillRect(x, y + height - 3, width, 3);
    }
    if (wide > 26) {
      pen.font = fontOf(kind);
      pen.fillStyle = theme.ink;
      const text = fitted(pen, this.name(i), wide - 9);
      if (text) {
        if (kind === "kernel" || kind === "kernelInlined") this.clear(pen, theme, kind, frame, x + 3, y, text);
        pen.fillStyle = theme.ink;
        pen.fillText(text, x + 4, y + height / 2 + 0.5);
      }
    }
    pen.globalAlpha = 1;
    if (i === this.at || lit) {
      pen.strokeStyle = lit && i !== this.at ? theme.mark : theme.ink;
      pen.lineWidth = i === this.at ? 2 : 1.5;
      pen.strokeRect(x + 0.75, y + 0.75, Math.max(1, width - 1.5), height - 1.5);
      pen.lineWidth = 1;
    }
  }

  // No hatching behind letters.
  clear(pen, theme, kind, frame, x, y, text) {
    pen.fillStyle = shade(theme[kind], this.profile.module[frame]);
    pen.fillRect(x, y, widthOf(pen, text) + 3, ROW - 1);
  }

  name(i) {
    const frame = this.view.frame[i];
    return frame < 0 ? this.view.labelOf(i) : this.profile.strings[this.profile.name[frame]];
  }

  // The box at a point of the canvas, or -1.
  hit(x, y) {
    const { view, zoomed } = this;
    const row = Math.floor((y + this.pane.scrollTop) / ROW);
    const depth = this.up ? this.deep - 1 - row : row;
    if (!view || depth < 0 || depth >= this.deep) return -1;
    if (depth <= view.depth[zoomed]) return view.pathOf(zoomed)[depth] ?? -1;
    const value = view.start[zoomed] + (x / this.width) * view.total[zoomed];
    let box = zoomed;
    while (view.depth[box] < depth) {
      const inside = (i) => value >= view.start[i] && value < view.start[i] + view.total[i];
      const child = view.childrenOf(box).find(inside);
      if (child === undefined) return -1;
      box = child;
    }
    return box;
  }

  placeOf(box) {
    const { view, zoomed } = this;
    const outer = view.depth[box] <= view.depth[zoomed];
    const scale = this.width / (view.total[zoomed] || 1);
    return {
      x: outer ? 0 : (view.start[box] - view.start[zoomed]) * scale,
      y: this.top(view.depth[box], this.pane.scrollTop),
      width: outer ? this.width : view.total[box] * scale,
    };
  }

  point(event) {
    const box = this.hit(event.offsetX, event.offsetY);
    this.hover(box, { x: event.clientX, y: event.clientY });
  }

  hover(box, place) {
    if (box !== this.at) {
      this.at = box;
      this.ask();
    }
    this.on.hover(this, box, place);
  }

  click(event) {
    const box = this.hit(event.offsetX, event.offsetY);
    if (box < 0) return;
    if (event.shiftKey) this.on.sandwich(this, box);
    else this.on.zoom(this, box);
  }

  key(event) {
    const { view } = this;
    if (!view || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.at < 0 ? this.zoomed : this.at;
    const siblings = () => {
      const parent = view.parentOf(at);
      return parent < 0 ? [at] : view.childrenOf(parent);
    };
    const step = (by) => siblings()[siblings().indexOf(at) + by] ?? at;
    const heaviest = () => view.childrenOf(at).reduce((best, i) => (best < 0 || view.total[i] > view.total[best] ? i : best), -1);
    const inward = () => { const child = heaviest(); return child < 0 ? at : child; };
    const outward = () => Math.max(0, view.parentOf(at));
    const moves = {
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      ArrowUp: this.up ? inward : outward,
      ArrowDown: this.up ? outward : inward,
      Home: () => this.zoomed,
    };
    if (moves[event.key]) this.move(moves[event.key]());
    else if (event.key === "Enter" && at >= 0) this.on.zoom(this, at);
    else if (event.key === "Escape") this.on.zoom(this, Math.max(0, view.parentOf(this.zoomed)));
    else if (event.key.toLowerCase() === "s") this.on.sandwich(this, at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(box) {
    const { view, pane } = this;
    // What is outside of the zoomed box is reached by zooming out.
    const within = box >= this.zoomed && box < view.end[this.zoomed];
    if (!within && view.depth[box] > view.depth[this.zoomed]) return;
    this.at = box;
    const place = this.placeOf(box);
    if (place.y < 0) pane.scrollTop += place.y - ROW;
    else if (place.y > this.height - ROW) pane.scrollTop += place.y - this.height + 2 * ROW;
    this.ask();
    const bounds = this.canvas.getBoundingClientRect();
    this.on.hover(this, box, { x: bounds.left + place.x + 16, y: bounds.top + this.placeOf(box).y + ROW }, true);
  }

  // On paper: everything, in a width that is given.
  print(width) {
    this.width = width;
    this.deep = this.rows(width);
    this.draw(width, Math.min(this.deep * ROW, 1500), this.up ? Math.max(0, this.deep * ROW - 1500) : 0);
  }
}
