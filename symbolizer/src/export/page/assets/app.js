// Puts the parts together: what is selected, its history, and what follows from it.

const by = (id) => document.getElementById(id);
const FIRST = { mode: "flame", grouping: "none", span: null, processes: null, threads: null, cpus: null, path: [], fn: -1 };

class App {
  constructor(profile) {
    this.profile = profile;
    this.state = { ...FIRST };
    this.several = profile.head.archives.length > 1;
    this.matches = null;
    const on = {
      zoom: (graph, box) => this.zoom(graph, box),
      sandwich: (graph, box) => this.openBox(graph, box),
      hover: (graph, box, place, spoken) => this.describe(graph, box, place, spoken),
    };
    const graph = (name) => new FlameGraph(by(`${name}-box`), by(name), profile, on);
    [this.flame, this.callers, this.callees] = ["flame", "callers", "callees"].map(graph);
    this.callers.up = this.callees.up = false;
    this.heat = new HeatMap(by("heat"), profile, { select: (span) => this.go({ span }) });
    this.table = new FunctionTable(by("table-head"), by("table-body"), profile, {
      open: (fn) => this.go({ mode: "sandwich", fn }),
      hover: (fn) => this.light(fn),
    });
  }

  start() {
    this.heading();
    legend(this.profile);
    this.facets();
    this.wire();
    history.replaceState(this.state, "");
    this.index = this.last = 0;
    this.update();
  }

  // Take a step that can be taken back.
  go(change) {
    const next = { ...this.state, ...change };
    if (JSON.stringify(next) === JSON.stringify(this.state)) return;
    this.state = next;
    this.index = this.last = this.index + 1;
    history.pushState({ ...this.state, index: this.index }, "");
    this.update();
  }

  select() {
    return selectCells(this.profile, this.state);
  }

  update() {
    const { profile, state } = this;
    this.tree = treeOf(profile, this.select());
    this.view = state.grouping === "none" ? this.tree : this.grouped(state.grouping);
    this.sums = functionSums(profile, this.tree);
    this.whole = this.tree.total[0];
    this.heat.set(selectCells(profile, state, "time"));
    this.heat.choose(state.span);
    this.draw();
  }

  grouped(grouping) {
    const { profile, several } = this;
    const thread = (i) => profile.thread[i];
    const threads = profile.head.threads;
    const kinds = {
      process: [(i) => profile.processOf[thread(i)], (id) => processLabel(profile.processes[id], several)],
      thread: [thread, (id) => threadLabel(threads[id], several)],
      cpu: [(i) => profile.cpu[i], (cpu) => `CPU ${cpu}`],
    };
    return groupedTree(profile, this.select(), ...kinds[grouping]);
  }

  draw() {
    const { state } = this;
    const sandwiched = state.mode === "sandwich";
    by("flame-box").hidden = by("path").hidden = sandwiched;
    by("sandwich-box").hidden = !sandwiched;
    this.find();
    if (sandwiched) this.drawSandwich();
    else {
      this.flame.up = state.mode === "flame";
      this.flame.set(this.view, this.view.follow(state.path));
      this.crumbs();
    }
    this.controls();
  }

  drawSandwich() {
    // Without a choice: the function with the most time of its own.
    const fn = this.state.fn >= 0 ? this.state.fn : this.table.rows[0] ?? 0;
    const { callers, callees } = sandwich(this.profile, this.tree, fn);
    by("callers-of").textContent = by("callees-of").textContent = this.table.nameOf(fn);
    this.callers.set(callers, 0);
    this.callees.set(callees, 0);
  }

  zoom(graph, box) {
    if (graph !== this.flame) {
      graph.set(graph.view, box);
      return;
    }
    // The root is the empty path: it is there whatever is selected.
    this.go({ path: box === 0 ? [] : this.view.pathOf(box).map((i) => this.view.stepOf(i)) });
  }

  openBox(graph, box) {
    const frame = graph.view.frame[box];
    if (frame >= 0) this.go({ mode: "sandwich", fn: this.profile.functionOf[frame] });
  }

  find() {
    const text = by("search").value.trim();
    const matches = text ? matcher(text) : undefined;
    by("search").classList.toggle("wrong", matches === null);
    this.matches = null;
    if (matches) {
      const { profile } = this;
      const named = profile.strings.map((name) => (matches(name) ? 1 : 0));
      this.matches = Uint8Array.from(profile.name, (name) => named[name]);
    }
    const weight = this.matches ? matchedWeight(this.tree, this.matches) : 0;
    const [unit, whole] = [this.profile.head.unit, this.whole];
    by("found").textContent = matches === null ? "no regular expression" : this.matches ? `${share(weight, whole)} · ${amount(weight, unit)}` : "";
    for (const graph of [this.flame, this.callers, this.callees]) {
      graph.matches = this.matches;
      graph.ask();
    }
    this.table.set(this.sums, whole, this.matches);
  }

  light(fn) {
    for (const graph of [this.flame, this.callers, this.callees]) {
      if (graph.lit === fn) continue;
      graph.lit = fn;
      graph.ask();
    }
  }

  // The card beside the pointer, and the line that is read out.
  describe(graph, box, place, spoken) {
    const tip = by("tip");
    if (box < 0 || !place) {
      tip.hidden = true;
      return;
    }
    const lines = this.facts(graph, box);
    tip.replaceChildren(tag("strong", lines[0]), ...lines.slice(1).map((line) => tag("p", line)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const [right, bottom] = [innerWidth - width - 12, innerHeight - height - 12];
    tip.style.left = `${Math.max(8, Math.min(place.x + 14, right))}px`;
    tip.style.top = `${place.y + 20 > bottom ? Math.max(8, place.y - height - 14) : place.y + 20}px`;
    if (spoken || by("status").textContent !== lines[0]) by("status").textContent = lines.join(" · ");
  }

  facts(graph, box) {
    const { profile } = this;
    const { view } = graph;
    const unit = profile.head.unit;
    const frame = view.frame[box];
    const parent = view.parentOf(box);
    const lines = [graph.name(box)];
    if (frame >= 0) {
      const place = placeOf(profile, frame);
      const module = profile.strings[profile.module[frame]];
      lines.push(place ? `${module} · ${place}` : module);
    }
    const ofParent = parent >= 0 ? `, ${share(view.total[box], view.total[parent])} of the box it stands on` : "";
    lines.push(`${amount(view.total[box], unit)}, ${share(view.total[box], this.whole)} of what is selected${ofParent}`);
    lines.push(`${amount(view.own[box], unit)} in itself`);
    const kinds = { kernel: "Kernel", inlined: "Inlined into its caller", kernelInlined: "Kernel, inlined into its caller", unresolved: "Has no name", marker: "Says how the stack ends" };
    const kind = frame >= 0 ? kinds[kindOf(profile.flags[frame])] : undefined;
    if (kind) lines.push(kind);
    return lines;
  }

  crumbs() {
    const { view } = this;
    const path = view.pathOf(this.flame.zoomed);
    by("path").replaceChildren(...path.map((box, i) => {
      const name = this.flame.name(box);
      const button = tag("button", i === 0 ? name : shortened(name));
      button.type = "button";
      button.title = name;
      if (i === path.length - 1) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => this.zoom(this.flame, box));
      const item = document.createElement("li");
      item.append(button);
      return item;
    }));
  }

  controls() {
    const { state, profile } = this;
    for (const button of document.querySelectorAll("[data-mode]")) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === state.mode));
    }
    by("grouping").value = state.grouping;
    by("grouping").disabled = state.mode === "sandwich";
    by("back").disabled = this.index === 0;
    by("forward").disabled = this.index === this.last;
    by("reset").disabled = Object.keys(FIRST).every((key) => key === "mode" || String(state[key]) === String(FIRST[key]));
    for (const facet of document.querySelectorAll(".facet")) facet.refresh();
    const span = state.span;
    by("time-clear").hidden = !span;
    const slot = profile.head.slot_ns;
    const heldBy = () => `${amount(this.whole, profile.head.unit)}`;
    by("time-range").textContent = span ? `${seconds(span[0] * slot)} – ${seconds(span[1] * slot)}: ${heldBy()}` : "";
  }

  heading() {
    const { head, slots, samples, weight } = this.profile;
    by("title").textContent = document.title = head.title;
    const add = (list) => list.reduce((sum, value) => sum + value, 0);
    const strong = tag("strong", `${amount(add(weight), head.unit)}${head.unit === "ns" || head.unit === "bytes" ? "" : ` ${head.unit}`}`);
    const facts = [` of ${head.event} in ${countFormat.format(add(samples))} samples over ${seconds(slots * head.slot_ns)}`];
    for (const { path, host, start_ms: start } of head.archives.slice(0, 4)) {
      const when = start ? `, ${new Date(start).toISOString().replace("T", " ").slice(0, 19)} UTC` : "";
      facts.push(` · ${baseName(path)}${host ? ` from ${host}` : ""}${when}`);
    }
    if (head.archives.length > 4) facts.push(` · ${head.archives.length - 4} more archives`);
    by("facts").append(strong, facts.join(""));
    const problems = head.archives.flatMap(({ path, problems: said }) => said.slice(0, 1).map((problem) => `${baseName(path)} is not whole: ${problem}`));
    for (const problem of problems.slice(0, 3)) {
      const line = tag("span", ` · ${problem}`);
      line.className = "problem";
      by("facts").append(line);
    }
    const { column, rows, perCell } = this.heat;
    by("time-scale").textContent = `a column is ${plainly(column, "ns")}, from the bottom up ${rows > 1 ? `in cells of ${plainly(perCell * head.slot_ns, "ns")}` : "as one cell"}; a stronger colour is more. Drag to select.`;
  }

  facets() {
    const { profile, several } = this;
    const cpus = [...new Set(profile.cpu)].sort((a, b) => a - b);
    const facet = (title, key, except, keyOf, ids, label) => {
      if (ids.length > 1) by("facets").append(facetOf(this, { title, key, except, keyOf, ids, label }));
    };
    const all = (list) => list.map((_, id) => id);
    facet("Process", "processes", "process", (i) => profile.processOf[profile.thread[i]], all(profile.processes), (id) => processLabel(profile.processes[id], several));
    facet("Thread", "threads", "thread", (i) => profile.thread[i], all(profile.head.threads), (id) => threadLabel(profile.head.threads[id], several));
    facet("CPU", "cpus", "cpu", (i) => profile.cpu[i], cpus, (cpu) => `CPU ${cpu}`);
  }

  wire() {
    for (const button of document.querySelectorAll("[data-mode]")) {
      button.addEventListener("click", () => this.go({ mode: button.dataset.mode }));
    }
    by("grouping").addEventListener("change", () => this.go({ grouping: by("grouping").value, path: [] }));
    by("search").addEventListener("input", () => this.find());
    by("time-clear").addEventListener("click", () => this.go({ span: null }));
    by("reset").addEventListener("click", () => this.go({ ...FIRST, mode: this.state.mode }));
    by("back").addEventListener("click", () => history.back());
    by("forward").addEventListener("click", () => history.forward());
    addEventListener("popstate", (event) => {
      this.index = event.state?.index ?? 0;
      this.state = { ...FIRST, ...event.state };
      this.update();
    });
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", (event) => {
      for (const open of document.querySelectorAll("details[open]")) if (!open.contains(event.target)) open.open = false;
    });
    wireHelp();
    wireTheme(() => this.repaint());
    wirePrint(this);
  }

  repaint() {
    for (const part of [this.flame, this.callers, this.callees, this.heat]) part.ask();
    legend(this.profile);
  }

  key(event) {
    const typing = event.target.closest("input, select, dialog");
    if (event.key === "Escape" && event.target === by("search")) {
      by("search").value = "";
      this.find();
      by("flame").focus();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const modes = { f: "flame", i: "icicle", c: "sandwich" };
    if (event.key === "/") by("search").focus();
    else if (event.key === "?") by("help").showModal();
    else if (event.key === "Backspace") { if (this.index > 0) history.back(); }
    else if (event.key === "0") this.go({ path: [] });
    else if (event.key === "Escape") this.zoom(this.flame, Math.max(0, this.view.parentOf(this.flame.zoomed)));
    else if (modes[event.key]) this.go({ mode: modes[event.key] });
    else return;
    event.preventDefault();
  }
}
