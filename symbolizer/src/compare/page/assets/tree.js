// Both sides as one tree in preorder, with the cost of each box on either side. Layout: compare/page/data.rs.

async function readComparison(element) {
  const columns = new Columns(await inflate(decodeBase64(element.textContent.trim())));
  const head = JSON.parse(columns.text());
  if (head.layout !== 1) throw new Error(`this page cannot read layout ${head.layout}`);
  const { nodes, step } = head;
  const tree = {
    head,
    count: nodes,
    depth: columns.column(Uint32Array, nodes),
    // The root has none.
    frame: columns.column(Int32Array, nodes, 1),
    own: [columns.column(Float64Array, nodes), columns.column(Float64Array, nodes)],
  };
  element.remove();
  tree.frame[0] = ROOT_LABEL;
  tree.parent = parents(tree.depth);
  for (const own of tree.own) for (let i = 0; i < nodes; i++) own[i] *= step;
  tree.total = tree.own.map((own) => {
    const total = Float64Array.from(own);
    for (let i = nodes - 1; i > 0; i--) total[tree.parent[i]] += total[i];
    return total;
  });
  return tree;
}

// What is drawn: `mode` is base, new or difference. There the width of a box is that of its children, and of itself the
// larger of both costs, so that what is gone keeps its place.
function compareView(tree, mode) {
  const { count, parent, depth, frame, own } = tree;
  const width = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    width[i] = mode === "base" ? own[0][i] : mode === "new" ? own[1][i] : Math.max(own[0][i], own[1][i]);
  }
  for (let i = count - 1; i > 0; i--) width[parent[i]] += width[i];
  const view = new View(count);
  view.node = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    if (width[i] <= 0 && i > 0) continue;
    view.node[view.count] = i;
    view.add(frame[i], depth[i], width[i], 0);
  }
  return view.finish();
}

// How a box changed: its costs with what it called.
function changeOf(tree, node) {
  const [base, new_] = tree.total.map((total) => total[node]);
  const whole = Math.max(tree.total[0][0], tree.total[1][0]);
  const delta = new_ - base;
  const kind = base <= 0 && new_ > 0 ? "new" : new_ <= 0 && base > 0 ? "gone" : "both";
  // What the margins leave alone is drawn as unchanged.
  const matters = Math.abs(delta) > Math.max(0.02 * base, 0.001 * whole);
  return { base, new: new_, delta, kind, matters, relative: base > 0 ? delta / base : Infinity };
}
