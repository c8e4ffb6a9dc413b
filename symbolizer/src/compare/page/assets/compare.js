// Reads the comparison and starts: views, table, search. What a console may ask for is in `rawstack`.

const by = (id) => document.getElementById(id);

function signed(part) {
  return `${part >= 0 ? "+" : "−"}${percentFormat.format(Math.abs(part) * 100)} %`;
}

function changeText(change) {
  return change.kind === "both" ? signed(change.relative) : change.kind;
}

// A cost; shares have no unit.
function costText(head, value) {
  if (head.per === "of the total") return `${percentFormat.format(value * 100)} %`;
  if (value > 0 && value < 1) return `${value.toPrecision(3)} ${head.unit}`;
  return amount(value, head.unit);
}

function rowChange(row) {
  if (row.base <= 0) return row.new > 0 ? "new" : "none";
  return row.new <= 0 ? "gone" : signed(row.new / row.base - 1);
}

function rowBounds(row) {
  if (row.base <= 0 || row.low === null || row.high === null) return "";
  return `${signed(row.low / row.base)} … ${signed(row.high / row.base)}`;
}

function cell(text, className) {
  const element = document.createElement("td");
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

class Table {
  constructor(body, head, on) {
    Object.assign(this, { body, head, on });
    this.rows = [head.total, ...head.rows];
  }

  show(matches) {
    this.body.replaceChildren(...this.rows.filter((row) => !matches || matches(row.name)).map((row) => this.line(row)));
  }

  line(row) {
    const line = document.createElement("tr");
    line.dataset.verdict = row.verdict;
    line.tabIndex = 0;
    const q = row.q < 1e-4 ? "<0.0001" : row.q.toFixed(4);
    line.append(
      cell(row.verdict, "verdict"),
      cell(row.why ? `${row.name} (${row.why})` : row.name, "name"),
      cell(rowChange(row), "number"),
      cell(rowBounds(row), "number"),
      cell(costText(this.head, row.base), "number"),
      cell(costText(this.head, row.new), "number"),
      cell(q, "number"),
    );
    line.addEventListener("click", () => this.on.choose(row));
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") this.on.choose(row); });
    return line;
  }
}

function tip(tree, pointed, x, y) {
  const box = by("tip");
  box.hidden = pointed === null;
  if (pointed === null) return;
  const { head } = tree;
  const change = changeOf(tree, pointed.node);
  const whole = tree.total[1][0] || tree.total[0][0] || 1;
  const lines = [
    pointed.name,
    `${costText(head, change.base)} → ${costText(head, change.new)}, with what it called`,
    `${changeText(change)}, ${signed(change.delta / whole)} of the total`,
  ];
  const frame = tree.frame[pointed.node];
  if (frame >= 0) lines.splice(1, 0, `${head.modules[frame]}${head.kernel[frame] ? ", kernel" : ""}`);
  box.replaceChildren(...lines.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
  by("status").textContent = lines.join("; ");
  if (x === undefined) {
    box.hidden = true;
    return;
  }
  box.style.left = `${Math.min(x + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.min(y + 16, innerHeight - box.offsetHeight - 8)}px`;
}

function showPath(graph, path) {
  by("path").replaceChildren(...path.map(({ box, name }) => {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: shortName(name), title: name });
    button.addEventListener("click", () => graph.zoom(box));
    item.append(button);
    return item;
  }));
}

async function main() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const tree = await readComparison(by("profile"));
  const { head } = tree;
  by("title").textContent = head.title;
  by("verdict").textContent = head.headline;
  by("verdict").dataset.verdict = head.verdict;
  by("facts").replaceChildren(...head.facts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  let mode = "difference";
  const graph = new Graph(by("flame"), by("flame-box"), tree, {
    point: (pointed, x, y) => tip(tree, pointed, x, y),
    zoomed: (path) => showPath(graph, path),
  });
  const look = (text) => {
    const matches = text === "" ? null : matcher(text);
    graph.matches = matches;
    table.show(matches);
    graph.draw();
  };
  const table = new Table(by("rows"), head, {
    choose: (row) => {
      const name = row.name === "[total]" ? "" : row.name;
      by("search").value = name;
      look(name);
    },
  });
  const choose = (wanted) => {
    mode = wanted;
    for (const button of document.querySelectorAll("[data-mode]")) {
      button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    }
    graph.show(mode);
  };
  for (const button of document.querySelectorAll("[data-mode]")) {
    button.addEventListener("click", () => choose(button.dataset.mode));
  }
  by("search").addEventListener("input", (event) => look(event.target.value));
  table.show(null);
  choose(mode);
  graph.zoom(0);
  // For tests and consoles: every box with both its costs.
  const boxes = () => Array.from({ length: graph.view.count }, (_, i) => {
    const change = changeOf(tree, graph.view.node[i]);
    return { name: graph.name(i), depth: graph.view.depth[i], width: graph.view.total[i], ...change };
  });
  window.rawstack = Object.freeze({ boxes, mode: () => mode, verdict: head.verdict, rows: () => structuredClone(head.rows) });
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }));
}

main().catch((error) => {
  by("title").textContent = "This page could not be shown";
  by("verdict").textContent = `${error.message}. A current Chromium, Firefox or Safari is needed.`;
});
