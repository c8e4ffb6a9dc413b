// What is drawn: trees in preorder, as flat arrays, made of the profile by what is selected. Knows no document.
//
// A view has for each box `frame` (negative: a label), `depth`, `end` (the box behind its last descendant), `start` and
// `total` (place and width in the unit), `own`.

const ROOT_LABEL = -1;

// Which cells count: a span of slots, and sets of threads and CPUs, each null for all.
function selectCells(profile, selection, except) {
  const { thread, cpu, slot, cellCount } = profile;
  const allowed = profile.head.threads.map((_, id) => {
    if (except !== "thread" && selection.threads && !selection.threads.includes(id)) return 0;
    return except !== "process" && selection.processes && !selection.processes.includes(profile.processOf[id]) ? 0 : 1;
  });
  const [from, until] = selection.span && except !== "time" ? selection.span : [0, Infinity];
  const cpus = selection.cpus && except !== "cpu" ? new Set(selection.cpus) : null;
  return function each(visit) {
    let i = except === "time" ? 0 : lowerBound(slot, from);
    for (; i < cellCount && slot[i] < until; i++) {
      if (allowed[thread[i]] && (!cpus || cpus.has(cpu[i]))) visit(i);
    }
  };
}

function lowerBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

class View {
  constructor(room) {
    this.count = 0;
    this.frame = new Int32Array(room);
    this.depth = new Int32Array(room);
    this.total = new Float64Array(room);
    this.own = new Float64Array(room);
    this.labels = ["All"];
  }

  add(frame, depth, total, own) {
    const i = this.count++;
    this.frame[i] = frame;
    this.depth[i] = depth;
    this.total[i] = total;
    this.own[i] = own;
  }

  // Places and ends follow from depths and totals.
  finish() {
    const { count, depth, total } = this;
    this.end = new Int32Array(count);
    this.start = new Float64Array(count);
    this.height = 0;
    const open = [];
    const next = [];
    for (let i = 0; i < count; i++) {
      const d = depth[i];
      for (let above = open.length; above > d; above--) this.end[open.pop()] = i;
      open[d] = i;
      this.start[i] = d === 0 ? 0 : next[d - 1];
      if (d > 0) next[d - 1] += total[i];
      next[d] = this.start[i];
      if (d >= this.height) this.height = d + 1;
    }
    while (open.length) this.end[open.pop()] = count;
    return this;
  }

  parentOf(box) {
    let i = box - 1;
    while (i >= 0 && this.depth[i] >= this.depth[box]) i--;
    return i;
  }

  pathOf(box) {
    const path = [];
    for (let i = box; i >= 0; i = this.parentOf(i)) path.push(i);
    return path.reverse();
  }

  childrenOf(box) {
    const children = [];
    for (let i = box + 1; i < this.end[box]; i = this.end[i]) children.push(i);
    return children;
  }

  labelOf(box) {
    return this.labels[-1 - this.frame[box]];
  }

  // What stays the same of a box when the selection changes: its frame, or its label.
  stepOf(box) {
    return this.frame[box] < 0 ? this.labelOf(box) : this.frame[box];
  }

  // The box that a path of steps leads to, as far as it goes here.
  follow(path) {
    let box = 0;
    for (const step of path.slice(1)) {
      const child = this.childrenOf(box).find((i) => this.stepOf(i) === step);
      if (child === undefined) break;
      box = child;
    }
    return box;
  }
}

function sums(profile, own) {
  const { parent, nodeCount } = profile;
  const total = Float64Array.from(own);
  for (let i = nodeCount - 1; i > 0; i--) total[parent[i]] += total[i];
  return total;
}

function append(view, profile, own, total, deeper) {
  const { frame, depth, nodeCount } = profile;
  for (let i = deeper; i < nodeCount; i++) {
    if (total[i] > 0) view.add(frame[i], depth[i] + deeper, total[i], own[i]);
  }
}

function count(total) {
  let boxes = 0;
  for (let i = 0; i < total.length; i++) if (total[i] > 0) boxes++;
  return boxes;
}

// One tree of all that is selected.
function treeOf(profile, each) {
  const own = new Float64Array(profile.nodeCount);
  each((i) => { own[profile.leaf[i]] += profile.weight[i]; });
  const total = sums(profile, own);
  const view = new View(Math.max(1, count(total)));
  if (total[0] === 0) view.add(ROOT_LABEL, 0, 0, 0);
  append(view, profile, own, total, 0);
  return view.finish();
}

// A tree for each process, thread or CPU, side by side below one root; the heaviest first.
const MOST_GROUPS = 200;

function groupedTree(profile, each, keyOf, labelOf) {
  const cells = new Map();
  const weights = new Map();
  each((i) => {
    const key = keyOf(i);
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(i);
    weights.set(key, (weights.get(key) ?? 0) + profile.weight[i]);
  });
  const keys = [...cells.keys()].sort((a, b) => weights.get(b) - weights.get(a) || a - b);
  const parts = keys.slice(0, MOST_GROUPS).map((key) => ({ label: labelOf(key), cells: cells.get(key) }));
  const rest = keys.slice(MOST_GROUPS);
  if (rest.length) parts.push({ label: `${rest.length} more`, cells: rest.flatMap((key) => cells.get(key)) });
  const trees = [];
  let boxes = 1;
  for (const part of parts) {
    const own = new Float64Array(profile.nodeCount);
    for (const i of part.cells) own[profile.leaf[i]] += profile.weight[i];
    const total = sums(profile, own);
    const tree = new View(Math.max(1, count(total)));
    append(tree, profile, own, total, 0);
    trees.push(tree);
    boxes += tree.count;
  }
  const view = new View(boxes);
  view.add(ROOT_LABEL, 0, trees.reduce((sum, tree) => sum + (tree.count ? tree.total[0] : 0), 0), 0);
  trees.forEach((tree, part) => {
    view.labels.push(parts[part].label);
    for (let i = 0; i < tree.count; i++) {
      view.add(i === 0 ? -2 - part : tree.frame[i], tree.depth[i] + 1, tree.total[i], tree.own[i]);
    }
  });
  return view.finish();
}

// Self and total of each function: recursion counts once.
function functionSums(profile, view) {
  const own = new Float64Array(profile.functionCount);
  const total = new Float64Array(profile.functionCount);
  const inside = new Int32Array(profile.functionCount);
  for (let i = 0; i < view.count; i++) {
    if (view.frame[i] < 0) continue;
    const id = profile.functionOf[view.frame[i]];
    own[id] += view.own[i];
    if (inside[id] <= i) {
      total[id] += view.total[i];
      inside[id] = view.end[i];
    }
  }
  return { own, total };
}

// The part of the total that lies below boxes which match.
function matchedWeight(view, matches) {
  let weight = 0;
  for (let i = 0; i < view.count;) {
    if (view.frame[i] >= 0 && matches[view.frame[i]]) {
      weight += view.total[i];
      i = view.end[i];
    } else i++;
  }
  return weight;
}

// A tree that grows in any order.
class Growing {
  constructor(frames) {
    this.frames = frames;
    this.index = new Map();
    this.frame = [ROOT_LABEL];
    this.children = [[]];
    this.total = [0];
    this.own = [0];
  }

  child(parent, frame) {
    const key = parent * this.frames + frame;
    let node = this.index.get(key);
    if (node === undefined) {
      node = this.frame.length;
      this.index.set(key, node);
      this.frame.push(frame);
      this.children.push([]);
      this.total.push(0);
      this.own.push(0);
      this.children[parent].push(node);
    }
    return node;
  }

  // As a view whose root is the only child of ours.
  view() {
    const view = new View(this.frame.length);
    const waiting = [[this.children[0][0] ?? 0, 0]];
    while (waiting.length) {
      const [node, depth] = waiting.pop();
      view.add(this.frame[node], depth, this.total[node], this.own[node]);
      const below = this.children[node].sort((a, b) => this.total[a] - this.total[b] || this.frame[b] - this.frame[a]);
      for (const child of below) waiting.push([child, depth + 1]);
    }
    return view.finish();
  }
}

// Callers and callees of a function, from its outermost boxes: recursion counts once.
function sandwich(profile, view, id) {
  const representative = profile.functionFrame[id];
  const callers = new Growing(profile.frameCount);
  const callees = new Growing(profile.frameCount);
  const top = callees.child(0, representative);
  const bottom = callers.child(0, representative);
  const open = [];
  let inside = 0;
  for (let i = 0; i < view.count; i++) {
    open[view.depth[i]] = i;
    if (i < inside || view.frame[i] < 0 || profile.functionOf[view.frame[i]] !== id) continue;
    inside = view.end[i];
    const weight = view.total[i];
    let node = bottom;
    callers.total[node] += weight;
    for (let d = view.depth[i] - 1; d >= 0 && view.frame[open[d]] >= 0; d--) {
      node = callers.child(node, view.frame[open[d]]);
      callers.total[node] += weight;
    }
    const at = [top];
    const base = view.depth[i];
    callees.total[top] += weight;
    callees.own[top] += view.own[i];
    for (let j = i + 1; j < view.end[i]; j++) {
      const level = view.depth[j] - base;
      const below = callees.child(at[level - 1], view.frame[j]);
      at[level] = below;
      callees.total[below] += view.total[j];
      callees.own[below] += view.own[j];
    }
  }
  return { callers: callers.view(), callees: callees.view() };
}
