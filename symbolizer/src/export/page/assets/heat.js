// When time went: a column for each second (or so), from the bottom up its parts. A span of it selects.

const COLUMN_NS = [1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9, 2e9, 5e9, 1e10, 3e10, 6e10, 3e11, 6e11, 3.6e12, 3.6e13];
const AXIS = 18;

class HeatMap {
  // `on`: select(span of slots or null).
  constructor(canvas, profile, on) {
    Object.assign(this, { canvas, profile, on, span: null, anchor: -1, cursor: -1, weights: null });
    new ResizeObserver(() => this.show()).observe(canvas);
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", () => this.release());
    canvas.addEventListener("pointercancel", () => { this.anchor = -1; this.ask(); });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => { this.cursor = -1; this.anchor = -1; this.ask(); });
    this.measure();
  }

  // Columns and rows: seconds where there are enough of them.
  measure() {
    const { slots, head } = this.profile;
    const slot = head.slot_ns;
    const length = Math.max(1, slots) * slot;
    const least = length >= 2e10 ? 1e9 : 0;
    const fits = (ns) => ns >= least && ns >= slot && ns % slot === 0 && length / ns <= (least ? 300 : 100);
    this.column = COLUMN_NS.find(fits) ?? Math.ceil(length / 300 / slot) * slot;
    const within = this.column / slot;
    this.rows = [25, 20, 10, 5, 4, 2, 1].find((rows) => within % rows === 0);
    this.perCell = within / this.rows;
    this.columns = Math.max(1, Math.ceil(length / this.column));
  }

  set(each) {
    const weights = new Float64Array(this.columns * this.rows);
    const { slot, weight } = this.profile;
    each((i) => { weights[Math.floor(slot[i] / this.perCell)] += weight[i]; });
    this.weights = weights;
    // One cell in a hundred may be beyond the scale: a single peak would leave all others pale. An even load is no peak.
    const filled = weights.filter((value) => value > 0).sort();
    this.most = filled.length ? filled[Math.floor((filled.length - 1) * 0.99)] * 1.25 : 0;
    this.ask();
  }

  choose(span) {
    this.span = span;
    this.ask();
  }

  show() {
    this.width = this.canvas.clientWidth;
    this.ask();
  }

  ask() {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => {
      this.wanted = false;
      this.draw();
    });
  }

  // Cells that are selected, or about to be.
  chosen() {
    if (this.anchor >= 0) return [Math.min(this.anchor, this.cursor), Math.max(this.anchor, this.cursor) + 1];
    return this.span ? [this.span[0] / this.perCell, this.span[1] / this.perCell] : null;
  }

  draw() {
    if (!this.weights || !this.width) return;
    const height = this.canvas.clientHeight || 104;
    const pen = fitCanvas(this.canvas, this.width, height);
    const theme = themeNow();
    const plot = height - AXIS;
    const [wide, high] = [this.width / this.columns, plot / this.rows];
    const chosen = this.chosen();
    const gap = wide > 5 ? 1 : 0;
    for (let k = 0; k < this.weights.length; k++) {
      const x = Math.floor(k / this.rows) * wide;
      const y = plot - ((k % this.rows) + 1) * high;
      pen.globalAlpha = chosen && (k < chosen[0] || k >= chosen[1]) ? 0.25 : 1;
      pen.fillStyle = this.color(theme, this.weights[k]);
      pen.fillRect(x, y, Math.max(wide - gap, 0.6), high + (gap ? 0 : 0.3));
    }
    pen.globalAlpha = 1;
    if (chosen) this.edges(pen, theme, chosen, wide, high, plot);
    if (this.cursor >= 0) {
      pen.strokeStyle = theme.mark;
      pen.lineWidth = 2;
      pen.strokeRect(Math.floor(this.cursor / this.rows) * wide, plot - ((this.cursor % this.rows) + 1) * high, Math.max(wide, 4), Math.max(high, 4));
    }
    this.axis(pen, theme, wide, plot);
    this.canvas.dataset.drawn = String(Number(this.canvas.dataset.drawn ?? 0) + 1);
  }

  color(theme, weight) {
    if (weight === 0) return theme.heat[0];
    const steps = theme.heat.length - 1;
    const level = Math.min(1, weight / this.most) * (steps - 1);
    const low = Math.min(Math.floor(level), steps - 2);
    return mixed(theme.heat[low + 1], theme.heat[low + 2], level - low);
  }

  // A line below what is selected: more than a shade tells where it is.
  edges(pen, theme, [from, until], wide, high, plot) {
    pen.fillStyle = theme.accent;
    const [first, last] = [Math.floor(from / this.rows), Math.floor((until - 1) / this.rows)];
    pen.fillRect(first * wide, plot + 1, Math.max(3, (last - first + 1) * wide), 3);
  }

  axis(pen, theme, wide, plot) {
    pen.font = FONTS.plain.replace("12px", "11px");
    pen.fillStyle = theme.soft;
    pen.textBaseline = "alphabetic";
    const steps = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 3600];
    const step = steps.find((step) => step * wide >= 74) ?? 7200;
    for (let column = 0; column < this.columns; column += step) {
      const text = seconds(column * this.column);
      const x = column * wide;
      if (x + widthOf(pen, text) > this.width) break;
      pen.fillText(text, x, plot + 15);
    }
  }

  cell(event) {
    const plot = (this.canvas.clientHeight || 104) - AXIS;
    const column = Math.min(this.columns - 1, Math.max(0, Math.floor((event.offsetX / this.width) * this.columns)));
    const up = Math.floor(((plot - event.offsetY) / plot) * this.rows);
    return column * this.rows + Math.min(this.rows - 1, Math.max(0, up));
  }

  press(event) {
    this.anchor = this.cursor = this.cell(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.ask();
  }

  drag(event) {
    if (this.anchor < 0 || event.buttons === 0) return;
    this.cursor = this.cell(event);
    this.ask();
  }

  // A press that did not move selects its whole column.
  release() {
    if (this.anchor < 0) return;
    let [from, until] = this.chosen();
    if (until - from === 1) {
      from -= from % this.rows;
      until = from + this.rows;
    }
    this.apply(from, until);
    this.cursor = -1;
  }

  apply(from, until) {
    this.anchor = -1;
    this.span = [from * this.perCell, until * this.perCell];
    this.ask();
    this.on.select(this.span);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: -this.rows, ArrowRight: this.rows, ArrowUp: 1, ArrowDown: -1 };
    if (event.key in moves) {
      const from = this.cursor < 0 ? 0 : this.cursor;
      if (event.shiftKey && this.anchor < 0) this.anchor = from;
      if (!event.shiftKey) this.anchor = -1;
      const to = this.cursor < 0 && !event.shiftKey ? 0 : from + moves[event.key];
      this.cursor = Math.min(this.weights.length - 1, Math.max(0, to));
      this.ask();
    } else if (event.key === "Enter" && this.cursor >= 0) {
      if (this.anchor < 0) this.anchor = this.cursor;
      this.release();
    } else if (event.key === "Escape") {
      this.anchor = this.cursor = -1;
      this.span = null;
      this.on.select(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function mixed(from, to, part) {
  const channel = (color, at) => parseInt(color.slice(at, at + 2), 16);
  const mix = (at) => Math.round(channel(from, at) + (channel(to, at) - channel(from, at)) * part);
  return `rgb(${mix(1)} ${mix(3)} ${mix(5)})`;
}
