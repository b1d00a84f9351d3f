// ── plan.js: the plan as typed arrays, and what the page asks of it. Knows neither the document nor the canvas. ──────────────
// An event is its index in its program's issue order; a storage is its index in the plan. Times are microseconds, sizes bytes.

const DEVICE = 0;

// Columns of a row of events, as page.c writes them.
const ID = 0, OP = 1, STREAM = 2, PHASE = 3, MODULE = 4, FILE = 5, LINE = 6, UNIT = 7, COMM = 8, UPDATE = 9, START = 10, DURATION = 11,
  FLOPS = 12, BYTES = 13, READS = 14, WRITES = 15, WAITS = 16, RESULTS = 17, OPERANDS = 18;

// block(name): the text of a block of data. Programs are read when they are first shown.
function readPlan(block) {
  const d = JSON.parse(block("plan"));
  const lasting = d.storages;
  d.storages = []; // by index; those of programs are there when their program has been read
  d.lasting = readStorages(d, lasting);
  d.programs = d.programs.map((g, i) => new Program(d, g, i, () => JSON.parse(block("program-" + i))));
  d.room = d.usable_bytes > 0 ? d.usable_bytes - d.library_bytes : 0; // for the device arena; 0: not known
  return d;
}

function readStorages(plan, rows) {
  return rows.map(([index, name, owner, cls, arena, program, offset, size, first, last]) =>
    plan.storages[index] = { index, name, owner: plan.strings[owner], cls, arena, program, offset, size, first, last });
}

// layers.31.mlp -> layers.*.mlp
const patterns = new Map();
function pathPattern(path) {
  if (!patterns.has(path)) patterns.set(path, path.split(".").map(part => /^\d+$/.test(part) ? "*" : part).join("."));
  return patterns.get(path);
}

// The first index of sorted numbers whose value is above x; their count where none is.
function above(sorted, x) {
  let lo = 0, hi = sorted.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (sorted[mid] > x) hi = mid; else lo = mid + 1;
  }
  return lo;
}

const KERNEL = 0, MATMUL = 1, ATTENTION = 2, COLLECTIVE = 3, COPY = 4;
const KIND_NAMES = ["other kernel", "matrix product", "attention", "collective", "copy"];

class Program {
  constructor(plan, g, index, read) {
    Object.assign(this, g, { plan, index, read, made: false });
  }

  // What drawing and questions need; made when the program is first shown.
  prepare() {
    if (this.made) return this;
    this.made = true;
    const { events, storages, actual } = this.read(), n = this.n, rows = this.events = events;
    this.storages = [...this.plan.lasting, ...readStorages(this.plan, storages)];
    this.start = new Float64Array(n);
    this.end = new Float64Array(n);
    this.stream = new Uint8Array(n);
    this.phase = new Uint8Array(n);
    this.kind = new Uint8Array(n);
    this.duration = Math.max(this.step_us, 1e-3);
    const kinds = this.plan.strings.map(s => /^(grouped_)?matmul/.test(s) ? MATMUL : /^attention/.test(s) ? ATTENTION : KERNEL);
    const copies = ["offload", "fetch"].map(s => this.plan.stream_names.indexOf(s));
    for (let e = 0; e < n; e++) {
      const r = rows[e];
      this.start[e] = r[START];
      this.end[e] = r[START] + r[DURATION];
      this.stream[e] = r[STREAM];
      this.phase[e] = r[PHASE];
      this.kind[e] = r[COMM] >= 0 ? COLLECTIVE : copies.includes(r[STREAM]) ? COPY : kinds[r[OP]];
      if (this.end[e] > this.duration) this.duration = this.end[e];
    }
    if (actual) { // of a run: medians of each event's begin and end, and how long it took; a collective without what it waits for others
      const column = k => Float64Array.from({ length: n }, (_, e) => actual[3 * e + k]);
      this.actual = { start: column(0), end: column(1), took: column(2) };
      this.actual.duration = this.actual.end.reduce((a, b) => Math.max(a, b), 0);
    }
    this.sortStreams();
    this.measureLives();
    this.modules = new Modules(this);
    return this;
  }

  // Of each stream that has events: they in the order of time, with their times. A stream runs one event after the other.
  sortStreams() {
    const count = new Int32Array(this.plan.stream_names.length);
    for (let e = 0; e < this.n; e++) count[this.stream[e]]++;
    const orders = Array.from(count, n => new Int32Array(n)), at = new Int32Array(count.length);
    for (let e = 0; e < this.n; e++) orders[this.stream[e]][at[this.stream[e]]++] = e;
    this.streams = [];
    orders.forEach((order, stream) => {
      const n = order.length, starts = new Float64Array(n), ends = new Float64Array(n);
      for (let k = 1; k < n; k++)
        if (this.start[order[k]] < this.start[order[k - 1]]) { order.sort((a, b) => this.start[a] - this.start[b] || a - b); break; }
      for (let k = 0; k < n; k++) { starts[k] = this.start[order[k]]; ends[k] = this.end[order[k]]; }
      const of = times => this.actual && Float64Array.from(order, e => times[e]);
      if (n) this.streams.push({ stream, name: this.plan.stream_names[stream], order, starts, ends, actual: this.actual && { order, starts: of(this.actual.start), ends: of(this.actual.end) } });
    });
    // The stream by whose events memory is shown: the one with most, which is compute in all programs that train.
    this.leading = this.streams.reduce((a, b) => a && a.order.length >= b.order.length ? a : b, null);
  }

  // When the bytes of a storage are in use: from the start of the first event that touches it to the end of the last one.
  measureLives() {
    const count = this.plan.storages.length; // those of this program included
    this.from = new Float64Array(count).fill(Infinity);
    this.to = new Float64Array(count).fill(-Infinity);
    const { from, to, start, end } = this;
    for (let e = 0; e < this.n; e++)
      for (let column = READS; column <= WRITES; column++) {
        const list = this.events[e][column];
        for (let i = 0; i < list.length; i += 3) {
          const s = list[i];
          if (start[e] < from[s]) from[s] = start[e];
          if (end[e] > to[s]) to[s] = end[e];
        }
      }
    for (const s of this.plan.lasting) {
      this.from[s.index] = 0;
      this.to[s.index] = this.duration;
    }
    this.levels = [];
  }

  // {of, total, at}: bytes alive while event e is issued are of[e * classes + class], and total[e] in all. at[k] is the event whose
  // live set is shown while the leading stream's event k is the last one that has started: of those issued since the one before, the
  // one with most bytes. So no peak is left out.
  memory(arena) {
    if (this.levels[arena]) return this.levels[arena];
    const n = this.n, classes = this.plan.classes.length;
    const change = new Float64Array((n + 1) * classes);
    for (const s of this.storages) {
      if (s.arena !== arena) continue;
      change[(s.program < 0 ? 0 : s.first) * classes + s.cls] += s.size;
      if (s.program >= 0) change[(s.last + 1) * classes + s.cls] -= s.size;
    }
    const of = change, total = new Float64Array(n);
    for (let e = 0; e < n; e++)
      for (let c = 0; c < classes; c++) {
        if (e) of[e * classes + c] += of[(e - 1) * classes + c];
        total[e] += of[e * classes + c];
      }
    const lead = this.leading ? this.leading.order : [], at = new Int32Array(lead.length);
    let most = 0;
    for (let k = 0, e = 0; k < lead.length; k++) {
      const last = k + 1 < lead.length ? lead[k] : n - 1;
      at[k] = Math.min(e, last);
      for (; e <= last; e++) if (total[e] > total[at[k]]) at[k] = e;
      most = Math.max(most, total[at[k]]);
    }
    return this.levels[arena] = { of, total, at, most };
  }

  // The index in memory().at at time t.
  momentAt(t) {
    return this.leading ? Math.max(0, above(this.leading.starts, t) - 1) : 0;
  }

  // Storages alive while event e is issued.
  live(arena, e) {
    return this.storages.filter(s => s.arena === arena && (s.program < 0 || (s.first <= e && e <= s.last)));
  }

  // How long e's stream stands still before e starts.
  idleBefore(e) {
    const s = this.streams.find(s => s.stream === this.stream[e]), k = s.order.indexOf(e);
    return this.start[e] - (k ? s.ends[k - 1] : 0);
  }

  // Events that wait for e.
  waiting(e) {
    if (!this.waiters) {
      this.waiters = new Map();
      for (let x = 0; x < this.n; x++)
        for (const [awaited] of this.events[x][WAITS]) {
          if (!this.waiters.has(awaited)) this.waiters.set(awaited, []);
          this.waiters.get(awaited).push(x);
        }
    }
    return this.waiters.get(e) || [];
  }

  // Events that read or write a storage: [event, writes].
  users(storage) {
    const out = [];
    for (let e = 0; e < this.n; e++) {
      const uses = column => { const l = this.events[e][column]; for (let i = 0; i < l.length; i += 3) if (l[i] === storage) return true; return false; };
      const writes = uses(WRITES);
      if (writes || uses(READS)) out.push([e, writes]);
    }
    return out;
  }

  text(e, column) { return this.plan.strings[this.events[e][column]]; }
  id(e) { return this.events[e][ID]; }
  eventNamed(id) { return this.events.findIndex(r => r[ID] === id); }

  // Events and storages whose names hold every word; an event of exactly that id comes first.
  search(query, most) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean), found = { events: [], storages: [], total: 0 };
    if (!words.length) return found;
    const holds = text => words.every(w => text.includes(w)), lower = this.plan.lower ||= this.plan.strings.map(s => s.toLowerCase());
    for (let e = 0; e < this.n; e++) {
      const r = this.events[e];
      if (!holds(r[ID].toLowerCase() + " " + lower[r[OP]] + " " + lower[r[MODULE]] + " " + this.plan.phases[r[PHASE]])) continue;
      found.total++;
      if (r[ID].toLowerCase() === words[0]) found.events.unshift(e);
      else if (found.events.length < most) found.events.push(e);
    }
    for (const s of this.storages) {
      if (!holds(s.name.toLowerCase() + " " + s.owner.toLowerCase() + " " + this.plan.classes[s.cls])) continue;
      found.total++;
      if (found.storages.length < most / 2) found.storages.push(s.index);
    }
    return found;
  }
}

const NONE = new Map(), DEEPEST = 100; // levels of modules: what is deeper is one name
function isNumber(name) { return /^\d+$/.test(name); }
function isList(node) { return node.list && node.children.size > 0; }

// ── modules as a tree whose identical layers are one row ─────────────────────────────────────────────────────────────────────
// Two layers are identical where the leading stream runs the same ops in the same phases for both, in one order.
class Modules {
  constructor(program) {
    this.program = program;
    this.root = { path: "", name: "", parent: null, children: NONE, list: true, hash: 0, count: 0 };
    this.nodeOf = new Map(); // string of a module's path: its node
    this.open = new Set(); // keys of rows that show what is in them
    if (!program.leading) return;
    const parts = new Map(), part = s => { if (!parts.has(s)) parts.set(s, parts.size + 1); return parts.get(s); };
    const outer = new Map(); // of a module: those that it is in, and a number for its path within each
    for (const e of program.leading.order) {
      const r = program.events[e], module = r[MODULE], what = r[OP] * 8 + r[PHASE];
      if (!outer.has(module)) {
        const path = program.plan.strings[module], list = [];
        for (let node = this.node(module, path); node.parent; node = node.parent) list.push([node, part(path.slice(node.path.length))]);
        outer.set(module, list);
      }
      for (const [node, within] of outer.get(module)) {
        node.hash = Math.imul(Math.imul(node.hash, 31) + within | 0, 31) + what | 0;
        node.count++;
      }
    }
    this.openTo(this.root);
  }

  // Opens what holds a list of layers; true: node does.
  openTo(node) {
    const children = [...node.children.values()], inside = children.filter(c => !isList(c)).map(c => this.openTo(c)).some(Boolean);
    const holds = children.some(isList) || (inside && !isNumber(node.name));
    if (holds && !isNumber(node.name)) this.open.add(node.path);
    return holds;
  }

  node(index, path) {
    if (this.nodeOf.has(index)) return this.nodeOf.get(index);
    const names = path ? path.split(".") : [];
    if (names.length > DEEPEST) names.push(names.splice(DEEPEST - 1).join("."));
    let node = this.root;
    for (const name of names) {
      let child = node.children.get(name);
      if (!child) {
        if (node.children === NONE) node.children = new Map();
        child = { name, path: node.path ? node.path + "." + name : name, parent: node, children: NONE, list: true, hash: 0, count: 0 };
        node.children.set(name, child);
        if (!isNumber(name)) node.list = false; // of its children not all are numbered
      }
      node = child;
    }
    this.nodeOf.set(index, node);
    return node;
  }

  // [{key, label, title, depth, members (nodes), more (it can be opened), open}] from top to bottom.
  rows() {
    const out = [];
    const list = (node, depth) => {
      const relative = path => path.slice(node.path.length);
      let children = [...node.children.values()];
      // Of a list of modules the members are shown, not the list.
      children = children.flatMap(c => isList(c) ? [...c.children.values()] : [c]);
      for (let i = 0; i < children.length;) {
        const first = children[i];
        let n = 1;
        while (isNumber(first.name) && i + n < children.length && children[i + n].parent === first.parent &&
               children[i + n].hash === first.hash && children[i + n].count === first.count) n++;
        const members = children.slice(i, i + n);
        i += n;
        if (n > 1) {
          const key = "*" + first.path, open = this.open.has(key), last = members[n - 1].name;
          out.push({ key, label: relative(first.path) + "–" + last, title: first.path + "–" + last, note: "×" + n, depth, members, more: true, open });
          if (open) members.forEach(m => single(m, depth + 1, relative(m.path)));
        } else single(first, depth, relative(first.path));
      }
    };
    const single = (node, depth, label) => {
      const open = this.open.has(node.path);
      out.push({ key: node.path, label, title: node.path, note: "", depth, members: [node], more: node.children.size > 0, open });
      if (open) list(node, depth + 1);
    };
    list(this.root, 0);
    return out;
  }

  get groups() { // keys of rows of identical layers, at the outermost level
    return this.rows().filter(r => r.key[0] === "*").map(r => r.key);
  }

  // Spans of a row: runs of the leading stream's events that are of one member and one phase.
  spans(row) {
    const p = this.program, order = p.leading.order, of = new Map(), memberOf = new Map(row.members.map((m, i) => [m, i]));
    for (const [index, start] of this.nodeOf) {
      for (let node = start; node; node = node.parent)
        if (memberOf.has(node)) { of.set(index, memberOf.get(node)); break; }
    }
    const spans = { from: [], to: [], phase: [], member: [], first: [] };
    let n = -1, before = -2;
    for (let k = 0; k < order.length; k++) {
      const e = order[k], member = of.get(p.events[e][MODULE]);
      if (member === undefined) continue;
      if (before !== k - 1 || spans.member[n] !== member || spans.phase[n] !== p.phase[e]) {
        n++;
        spans.from.push(p.start[e]); spans.to.push(0); spans.phase.push(p.phase[e]); spans.member.push(member); spans.first.push(e);
      }
      spans.to[n] = p.end[e];
      before = k;
    }
    return { ...spans, starts: Float64Array.from(spans.from), ends: Float64Array.from(spans.to), n: n + 1 };
  }
}

// ── figures as people read them ──────────────────────────────────────────────────────────────────────────────────────────────
function bytesText(x) {
  for (const [one, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (Math.abs(x) >= 0.9995 * one) return (x / one).toFixed(1) + " " + name;
  return x.toFixed(0) + " B";
}
function grouped(x) { return Math.round(x).toLocaleString("en-US"); }
function timeText(us) {
  if (us >= 0.9995e6) return (us / 1e6).toFixed(2) + " s";
  if (us >= 0.9995e3) return (us / 1e3).toFixed(us < 1e5 ? 2 : 1) + " ms";
  return us.toFixed(us < 10 ? 2 : 1) + " µs";
}
function amountText(x, unit) {
  for (const [one, name] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (x >= 0.9995 * one) return (x / one).toFixed(1) + " " + name + unit;
  return x.toFixed(0) + " " + unit;
}
function addressText(x) { return "0x" + x.toString(16).padStart(8, "0"); }
