// The smaller parts around the picture: lists to filter by, legend, help, theme, paper.

const MOST_CHOICES = 200;

// A list of processes, threads or CPUs with their shares; what is ticked is what counts.
function facetOf(app, { title, key, except, keyOf, ids, label }) {
  const facet = document.createElement("details");
  facet.className = "facet";
  facet.dataset.facet = key;
  const summary = document.createElement("summary");
  const list = document.createElement("div");
  list.className = "list";
  facet.append(summary, list);
  const toggle = (id, ticked) => {
    const held = new Set(app.state[key] ?? []);
    if (ticked) held.add(id);
    else held.delete(id);
    app.go({ [key]: held.size ? [...held].sort((a, b) => a - b) : null });
  };
  const fill = () => {
    const weights = new Map(ids.map((id) => [id, 0]));
    let whole = 0;
    selectCells(app.profile, app.state, except)((i) => {
      whole += app.profile.weight[i];
      weights.set(keyOf(i), weights.get(keyOf(i)) + app.profile.weight[i]);
    });
    const sorted = [...ids].sort((a, b) => weights.get(b) - weights.get(a) || a - b);
    const lines = sorted.slice(0, MOST_CHOICES).map((id) => {
      const line = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = app.state[key]?.includes(id) ?? false;
      box.addEventListener("change", () => toggle(id, box.checked));
      const part = tag("span", share(weights.get(id), whole));
      part.className = "share";
      const name = tag("span", label(id));
      name.title = label(id);
      line.append(box, name, part);
      return line;
    });
    if (sorted.length > MOST_CHOICES) lines.push(tag("p", `and ${sorted.length - MOST_CHOICES} more with less`));
    if (app.state[key]) {
      const clear = tag("button", "Show all");
      clear.type = "button";
      clear.addEventListener("click", () => app.go({ [key]: null }));
      lines.unshift(clear);
    }
    list.replaceChildren(...lines);
  };
  facet.addEventListener("toggle", () => { if (facet.open) fill(); });
  facet.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !facet.open) return;
    facet.open = false;
    summary.focus();
    event.stopPropagation();
  });
  facet.refresh = () => {
    const chosen = app.state[key];
    facet.classList.toggle("some", chosen !== null);
    summary.textContent = chosen === null ? title : chosen.length === 1 ? label(chosen[0]) : `${title}: ${chosen.length}`;
    if (facet.open) fill();
  };
  return facet;
}

function legend(profile) {
  const texts = {
    user: "User code", inlined: "inlined into its caller", kernel: "kernel", kernelInlined: "kernel, inlined",
    unresolved: "without a name", marker: "how a stack ends",
  };
  const there = new Set();
  for (let i = 0; i < profile.frameCount; i++) there.add(kindOf(profile.flags[i]));
  const theme = themeNow();
  const items = Object.keys(texts).filter((kind) => there.has(kind)).map((kind) => {
    const item = document.createElement("span");
    const sample = document.createElement("canvas");
    const pen = fitCanvas(sample, 46, 16);
    fillBox(pen, theme, { kind, module: 1, x: 0, y: 0, width: 46, height: 16 });
    item.append(sample, texts[kind]);
    return item;
  });
  items.push(tag("span", "A box is as wide as the time in it. Click to zoom, Shift and click for callers and callees."));
  by("legend").replaceChildren(...items);
}

function wireHelp() {
  const keys = [
    ["← → ↑ ↓", "move between boxes, or rows, or cells of time"],
    ["Enter", "zoom into the box; open the row; filter by the span"],
    ["Esc", "zoom out; all of the time"],
    ["0", "zoom out to everything"],
    ["Backspace", "back to what was shown before"],
    ["Shift ← →", "select a span in the heat map"],
    ["S", "callers and callees of the box"],
    ["F, I, C", "flame, icicle, callers and callees"],
    ["/", "search; /text/ is a regular expression"],
    ["?", "these keys"],
  ];
  by("keys").replaceChildren(...keys.flatMap(([key, text]) => {
    const term = document.createElement("dt");
    term.append(tag("kbd", key));
    return [term, tag("dd", text)];
  }));
  by("help-button").addEventListener("click", () => by("help").showModal());
}

function wireTheme(changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const choices = ["system", "light", "dark"];
  let choice = 0;
  const apply = () => {
    const system = dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = choice === 0 ? system : choices[choice];
    by("theme").textContent = `Theme: ${choices[choice]}`;
    changed();
  };
  by("theme").addEventListener("click", () => {
    choice = (choice + 1) % choices.length;
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}

// Paper is white, as wide as it is, and does not scroll.
function wirePrint(app) {
  const root = document.documentElement;
  let before = root.dataset.theme;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    app.heat.draw();
    legend(app.profile);
    const graphs = app.state.mode === "sandwich" ? [app.callers, app.callees] : [app.flame];
    for (const graph of graphs) graph.print(1000);
    app.table.print(true);
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = before;
    app.repaint();
    for (const graph of [app.flame, app.callers, app.callees]) graph.show();
    app.table.print(false);
  });
}
