// The profile as the page holds it: frames, the tree of stacks in preorder, and cells of time. Knows no document
// beyond the element that the data stands in. Layout: export/page/data.rs.

const KERNEL = 1;
const INLINED = 2;
const UNRESOLVED = 4;
const MARKER = 8;

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class Columns {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  number() {
    let byte = this.bytes[this.at++];
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    // Beyond 32 bits shifts would wrap.
    for (let scale = 128; byte >= 0x80; scale *= 128) {
      byte = this.bytes[this.at++];
      value += (byte & 0x7f) * scale;
    }
    return value;
  }

  text() {
    const length = this.number();
    const part = this.bytes.subarray(this.at, this.at + length);
    this.at += length;
    return new TextDecoder().decode(part);
  }

  column(Type, count, skip = 0) {
    const column = new Type(count);
    for (let i = skip; i < count; i++) column[i] = this.number();
    return column;
  }
}

async function readProfile(element) {
  const columns = new Columns(await inflate(decodeBase64(element.textContent.trim())));
  const head = JSON.parse(columns.text());
  if (head.layout !== 2) throw new Error(`this page cannot read layout ${head.layout}`);
  const { frames, nodes, cells } = head;
  const profile = {
    head,
    strings: head.strings,
    frameCount: frames,
    name: columns.column(Uint32Array, frames),
    module: columns.column(Uint32Array, frames),
    file: columns.column(Uint32Array, frames),
    line: columns.column(Uint32Array, frames),
    moreLines: columns.column(Uint32Array, frames),
    flags: columns.column(Uint8Array, frames),
    nodeCount: nodes,
    depth: columns.column(Uint32Array, nodes),
    // The root has none.
    frame: columns.column(Int32Array, nodes, 1),
    cellCount: cells,
    slot: columns.column(Uint32Array, cells),
    thread: columns.column(Uint32Array, cells),
    cpu: columns.column(Uint32Array, cells),
    leaf: columns.column(Uint32Array, cells),
    samples: columns.column(Uint32Array, cells),
    weight: columns.column(Float64Array, cells),
  };
  element.remove();
  for (let i = 1; i < cells; i++) profile.slot[i] += profile.slot[i - 1];
  profile.frame[0] = -1;
  profile.parent = parents(profile.depth);
  numberFunctions(profile);
  numberProcesses(profile);
  profile.slots = cells > 0 ? profile.slot[cells - 1] + 1 : 0;
  return profile;
}

function parents(depth) {
  const parent = new Int32Array(depth.length);
  const open = [];
  for (let i = 0; i < depth.length; i++) {
    parent[i] = depth[i] === 0 ? -1 : open[depth[i] - 1];
    open[depth[i]] = i;
  }
  return parent;
}

// File of a frame's function, with the lines of it that are on a stack; empty where none is known.
function placeOf(profile, frame) {
  const file = profile.file[frame];
  if (!file) return "";
  const name = profile.strings[file - 1];
  const [first, more] = [profile.line[frame], profile.moreLines[frame]];
  if (first === 0) return name;
  return more > 0 ? `${name}:${first}–${first + more}` : `${name}:${first}`;
}

// Frames of one name and module are one function. They lie side by side, since frames are sorted.
function numberFunctions(profile) {
  const { frameCount, name, module, flags } = profile;
  const of = new Uint32Array(frameCount);
  const first = [];
  const allInlined = [];
  for (let i = 0; i < frameCount; i++) {
    const same = i > 0 && name[i] === name[i - 1] && module[i] === module[i - 1];
    if (!same) {
      first.push(i);
      allInlined.push(true);
    }
    of[i] = first.length - 1;
    if (!(flags[i] & INLINED)) allInlined[of[i]] = false;
  }
  profile.functionOf = of;
  profile.functionFrame = Uint32Array.from(first);
  profile.functionInlined = allInlined;
  profile.functionCount = first.length;
}

function numberProcesses(profile) {
  const index = new Map();
  profile.processes = [];
  profile.processOf = profile.head.threads.map((thread) => {
    const key = `${thread.archive} ${thread.pid} ${thread.process}`;
    if (!index.has(key)) {
      index.set(key, profile.processes.length);
      profile.processes.push(thread);
    }
    return index.get(key);
  });
}
