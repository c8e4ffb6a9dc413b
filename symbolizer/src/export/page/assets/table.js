// Self and total of each function beside the picture. Holds only the rows that are in sight.

const LINE = 24;
const PRINTED_ROWS = 40;

class FunctionTable {
  // `on`: open(function), hover(function or -1).
  constructor(head, body, profile, on) {
    Object.assign(this, { head, body, profile, on, sort: "own", reverse: false, rows: [], at: -1, whole: 0 });
    this.space = document.createElement("div");
    this.space.className = "space";
    body.append(this.space);
    body.addEventListener("scroll", () => this.show());
    new ResizeObserver(() => this.show()).observe(body);
    for (const button of head.querySelectorAll("button")) {
      button.addEventListener("click", () => this.order(button.dataset.sort));
    }
    body.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) on.open(Number(row.dataset.id));
    });
    body.addEventListener("pointerover", (event) => {
      const row = event.target.closest(".row");
      on.hover(row ? Number(row.dataset.id) : -1);
    });
    body.addEventListener("pointerleave", () => on.hover(-1));
    body.addEventListener("blur", () => { this.at = -1; this.show(); on.hover(-1); });
    body.addEventListener("keydown", (event) => this.key(event));
  }

  nameOf(id) {
    return this.profile.strings[this.profile.name[this.profile.functionFrame[id]]];
  }

  moduleOf(id) {
    return this.profile.strings[this.profile.module[this.profile.functionFrame[id]]];
  }

  set({ own, total }, whole, matches) {
    Object.assign(this, { own, total, whole, matches });
    this.refresh();
  }

  order(column) {
    this.reverse = this.sort === column ? !this.reverse : false;
    this.sort = column;
    this.refresh();
  }

  refresh() {
    const { own, total, matches, profile } = this;
    const ids = [];
    for (let id = 0; id < total.length; id++) {
      const frame = profile.functionFrame[id];
      if (total[id] > 0 && (!matches || matches[frame])) ids.push(id);
    }
    // Functions are numbered by name, so equal weights stay in that order.
    const orders = {
      own: (a, b) => own[b] - own[a] || total[b] - total[a] || a - b,
      total: (a, b) => total[b] - total[a] || own[b] - own[a] || a - b,
      name: (a, b) => a - b,
    };
    ids.sort(orders[this.sort]);
    if (this.reverse) ids.reverse();
    this.rows = ids;
    this.at = -1;
    for (const button of this.head.querySelectorAll("button")) {
      const cell = button.parentElement;
      if (button.dataset.sort !== this.sort) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", (this.sort === "name") !== this.reverse ? "ascending" : "descending");
    }
    this.body.scrollTop = 0;
    this.show();
  }

  show() {
    const { body, rows } = this;
    const all = this.printing ? PRINTED_ROWS : null;
    const from = all ? 0 : Math.max(0, Math.floor(body.scrollTop / LINE) - 4);
    const until = all ?? Math.min(rows.length, Math.ceil((body.scrollTop + body.clientHeight) / LINE) + 4);
    this.space.style.height = `${rows.length * LINE}px`;
    const lines = [];
    for (let i = from; i < Math.min(until, rows.length); i++) lines.push(this.row(i));
    body.replaceChildren(this.space, ...lines);
  }

  row(i) {
    const id = this.rows[i];
    const { profile, whole } = this;
    const unit = profile.head.unit;
    const row = document.createElement("div");
    row.className = i === this.at ? "row at" : "row";
    row.setAttribute("role", "row");
    row.dataset.id = String(id);
    row.style.top = `${i * LINE}px`;
    const number = (value) => {
      const cell = document.createElement("span");
      cell.className = "number";
      cell.setAttribute("role", "cell");
      cell.title = `${exactly(value, unit)}, ${share(value, whole)}`;
      const bar = document.createElement("i");
      bar.style.width = `${whole > 0 ? (value / whole) * 100 : 0}%`;
      cell.append(amount(value, unit), bar);
      return cell;
    };
    const name = document.createElement("span");
    name.className = profile.functionInlined[id] ? "name inlined" : "name";
    name.setAttribute("role", "cell");
    name.title = `${this.nameOf(id)}\n${this.moduleOf(id)}`;
    if (profile.flags[profile.functionFrame[id]] & KERNEL) name.append(tag("b", "k"));
    name.append(this.nameOf(id), tag("small", baseName(this.moduleOf(id))));
    row.append(number(this.own[id]), number(this.total[id]), name);
    return row;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / LINE) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      const last = this.rows.length - 1;
      this.at = Math.min(last, Math.max(0, this.at < 0 && moves[event.key] === 1 ? 0 : this.at + moves[event.key]));
      const top = this.at * LINE;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      if (top + LINE > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + LINE - this.body.clientHeight;
      this.show();
      if (this.at >= 0) this.on.hover(this.rows[this.at]);
    } else if (event.key === "Enter" && this.at >= 0) this.on.open(this.rows[this.at]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // On paper: the first rows, until `show` is asked for again.
  print(printing) {
    this.printing = printing;
    this.show();
  }
}

function tag(element, text) {
  const made = document.createElement(element);
  made.textContent = text;
  return made;
}
