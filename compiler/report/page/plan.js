// ── plan.js: the plan as typed arrays, and what the page asks of it. Knows neither the document nor the canvas. ──────────────
// An event is its index in its program's issue order; a storage is its index in the plan. Times are microseconds, sizes bytes.

const DEVICE = 0;

// Of an event: its name in these columns of its program; its details, as page.c writes them, where it is asked for them.
const OP = "op", MODULE = "module";
const FILE = 0, LINE = 1, UNIT = 2, COMM = 3, UPDATE = 4, FLOPS = 5, BYTES = 6, READS = 7, WRITES = 8, REASONS = 9, RESULTS = 10, OPERANDS = 11, ORIGIN = 12, LIMIT = 13, PEAKS = 14, STATEMENT = 15, NUMBERS = 16;
const PASS = 0, MADE_FOR = 1, MADE_KERNEL = 2, PURPOSE = 3, ISSUED = 4, ISSUED_BY = 5; // of ORIGIN
const FLOPS_SHARE = 0, BYTES_SHARE = 1, BOUND = 2; // of LIMIT
const BOUND_ARITHMETIC = 1;

// block(name): the text of a block of data. Programs are read when they are first shown, details when they are first asked for.
function readPlan(block) {
  const d = JSON.parse(block("plan"));
  const lasting = d.storages;
  d.storages = new Array(d.storage_count); // by index; those of programs are there when their program has been read
  d.lasting = readStorages(d, lasting, -1);
  d.programs = d.programs.map((g, i) => new Program(d, g, i, block));
  let texts = null;
  Object.defineProperty(d, "texts", { get: () => texts ||= JSON.parse(block("texts")) }); // of details
  d.arenas = ["device", "host"];
  d.room = d.usable_bytes > 0 ? d.usable_bytes - d.library_bytes : 0; // for the device arena; 0: not known
  return d;
}

// Those that outlive programs: program -1.
function readStorages(plan, c, program) {
  return c.index.map((index, k) =>
    plan.storages[index] = { index, name: c.name[k], owner: plan.strings[c.owner[k]], cls: c.class[k], arena: c.arena[k], program, offset: c.offset[k], size: c.size[k], first: program < 0 ? -1 : c.first[k], last: program < 0 ? -1 : c.last[k] });
}

// layers.31.mlp -> layers.*.mlp
const patterns = new Map();
function pathPattern(path) {
  if (!patterns.has(path)) patterns.set(path, path.replace(/(?<![^.])\d+(?![^.])/g, "*"));
  return patterns.get(path);
}

function commonPath(a, b) {
  const x = a.split("."), y = b.split(".");
  let n = 0;
  while (n < x.length && n < y.length && x[n] === y[n]) n++;
  return x.slice(0, n).join(".");
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
  constructor(plan, g, index, block) {
    Object.assign(this, g, { plan, index, block, made: false, rows: null });
  }

  // What drawing and questions need; made when the program is first shown.
  prepare() {
    if (this.made) return this;
    this.made = true;
    const d = JSON.parse(this.block("program-" + this.index)), { actual } = d, n = this.n, { strings, stream_names } = this.plan;
    this.savings = d.savings.map(([kind, pattern, modules, bytes, lower, us, copied, entry]) => ({ kind, pattern, modules, bytes, lower, us, copied, entry }));
    this.storages = this.plan.lasting.concat(readStorages(this.plan, d.storages, this.index));
    this.ids = d.id;
    this.op = Int32Array.from(d.op);
    this.module = Int32Array.from(d.module);
    this.start = Float64Array.from(d.start);
    this.end = new Float64Array(n);
    this.stream = Uint8Array.from(d.stream);
    this.phase = Uint8Array.from(d.phase);
    this.kind = new Uint8Array(n);
    this.duration = Math.max(this.step_us, 1e-3);
    const kinds = new Map(d.op.map(op => [op, KERNEL]));
    for (const op of kinds.keys()) kinds.set(op, /^(grouped_)?matmul/.test(strings[op]) ? MATMUL : /^attention/.test(strings[op]) ? ATTENTION : KERNEL);
    const copies = stream_names.map(s => s === "offload" || s === "fetch");
    for (let e = 0; e < n; e++) {
      this.end[e] = this.start[e] + d.duration[e];
      this.kind[e] = d.collective[e] ? COLLECTIVE : copies[this.stream[e]] ? COPY : kinds.get(this.op[e]);
      if (this.end[e] > this.duration) this.duration = this.end[e];
    }
    this.slack = Float64Array.from(d.slack); // how much later an event may end without a longer program; 0: it is on the critical path
    this.limit = Float64Array.from(d.limit); // the least time at the device's peaks; 0: not known
    this.over = Uint8Array.from(d.over); // what bytes go over, of plan.routes
    this.comm = Int32Array.from(d.collective, x => x - 1); // the group of a collective; -1: it is none
    this.moved = Float64Array.from(d.moved); // bytes of collectives and copies
    this.took = Float64Array.from(d.duration);
    this.awaited = new Map(); // of events that wait: those that they wait for
    this.held = new Uint8Array(n); // 1: the event waits
    for (let i = 0; i < d.waits.length; i += 2) {
      this.held[d.waits[i]] = 1;
      const had = this.awaited.get(d.waits[i]);
      if (had) had.push(d.waits[i + 1]); else this.awaited.set(d.waits[i], [d.waits[i + 1]]);
    }
    if (actual) { // of a run: medians of each event's begin and end, and how long it took; a collective without what it waits for others
      const column = k => Float64Array.from({ length: n }, (_, e) => actual[3 * e + k]);
      this.actual = { start: column(0), end: column(1), took: column(2) };
      this.actual.duration = this.actual.end.reduce((a, b) => Math.max(a, b), 0);
    }
    this.sortStreams();
    this.measureLives(d.storages);
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
  measureLives(columns) {
    const count = this.plan.storages.length; // those of this program included
    this.from = new Float64Array(count).fill(Infinity);
    this.to = new Float64Array(count).fill(-Infinity);
    columns.index.forEach((s, k) => {
      if (columns.from[k] < 0) return;
      this.from[s] = this.start[columns.from[k]];
      this.to[s] = this.end[columns.to[k]];
    });
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

  // The event before e on its stream; -1: e is the first.
  before(e) {
    const s = this.streams.find(s => s.stream === this.stream[e]), k = s.order.indexOf(e);
    return k ? s.order[k - 1] : -1;
  }

  // How long e's stream stands still before e starts.
  idleBefore(e) {
    const before = this.before(e);
    return this.start[e] - (before < 0 ? 0 : this.end[before]);
  }

  // The event whose end let e start: of the one before it on its stream and those that it waits for, the one that ends last. -1: e
  // starts with the program.
  starter(e) {
    let last = this.before(e);
    for (const w of this.waits(e)) if (last < 0 || this.end[w] > this.end[last]) last = w;
    return last;
  }

  // Events that e waits for.
  waits(e) { return this.awaited.get(e) || []; }

  // What a red line before e says.
  heldText(e) {
    const by = this.starter(e);
    return this.plan.stream_names[this.stream[e]] + " waits " + timeText(this.idleBefore(e)) + " before " + this.id(e) + ", until " + this.id(by) + " has ended: " + this.text(by, OP) + " " + (this.text(by, MODULE) || this.plan.model) + ", on " + this.plan.stream_names[this.stream[by]];
  }

  // Whether it was over before something else let e start.
  overBefore(w, e) { return this.end[w] < this.end[this.starter(e)]; }

  // Events that wait for e.
  waiting(e) {
    if (!this.waiters) {
      this.waiters = new Map();
      for (let x = 0; x < this.n; x++)
        for (const awaited of this.waits(x)) {
          if (!this.waiters.has(awaited)) this.waiters.set(awaited, []);
          this.waiters.get(awaited).push(x);
        }
    }
    return this.waiters.get(e) || [];
  }

  // Of an event's reads or writes, each storage once, in their order: [storage, bytes of it that are touched, the first address within it].
  touched(list) {
    const of = new Map();
    for (let i = 0; i < list.length; i += 3) {
      if (!of.has(list[i])) of.set(list[i], []);
      of.get(list[i]).push([list[i + 1], list[i + 1] + list[i + 2]]);
    }
    return [...of].map(([storage, ranges]) => {
      let bytes = 0, end = 0;
      for (const [a, z] of ranges.sort((x, y) => x[0] - y[0])) {
        bytes += Math.max(0, z - Math.max(a, end));
        end = Math.max(end, z);
      }
      return [storage, bytes, ranges[0][0]];
    });
  }

  // Events that read or write a storage: [event, writes].
  users(storage) {
    const out = [], { program, first, last } = this.plan.storages[storage];
    for (let e = program < 0 ? 0 : first; e <= (program < 0 ? this.n - 1 : last); e++) {
      const r = this.row(e), uses = column => { const l = r[column]; for (let i = 0; i < l.length; i += 3) if (l[i] === storage) return true; return false; };
      const writes = uses(WRITES);
      if (writes || uses(READS)) out.push([e, writes]);
    }
    return out;
  }

  // Of each storage of this program: the path of the smallest module that all events which touch it are in.
  enclosing() {
    if (this.around) return this.around;
    this.around = new Map();
    for (let e = 0; e < this.n; e++) {
      const path = this.text(e, MODULE);
      for (const column of [READS, WRITES]) {
        const list = this.row(e)[column];
        for (let i = 0; i < list.length; i += 3) this.around.set(list[i], this.around.has(list[i]) ? commonPath(this.around.get(list[i]), path) : path);
      }
    }
    return this.around;
  }

  // Activations that the program keeps from the forward to the backward.
  kept() {
    const phase = name => this.plan.phases.indexOf(name), forward = phase("forward"), backward = phase("backward"), cls = this.plan.classes.indexOf("activations");
    return this.storages.filter(s => s.program >= 0 && s.cls === cls && this.phase[s.first] === forward && this.phase[s.last] === backward);
  }

  // What recomputing all modules of a pattern would free: { bytes, at the program's peak; one, of one module; modules, how many }.
  recompute(pattern) {
    const around = this.enclosing(), of = new Map(), depth = pattern.split(".").length;
    for (const s of this.kept()) {
      const path = around.get(s.index).split(".").slice(0, depth).join(".");
      if (pathPattern(path) === pattern && s.first <= this.peak_event && this.peak_event <= s.last) of.set(path, (of.get(path) || 0) + s.size);
    }
    const each = [...of.values()];
    return { bytes: each.reduce((a, b) => a + b, 0), one: Math.max(0, ...each), modules: of.size };
  }

  text(e, column) { return this.plan.strings[this[column][e]]; }
  id(e) { return this.ids[e]; }
  eventNamed(id) { return this.ids.indexOf(id); }

  // An event's details; each stands on a line of its own.
  row(e) {
    this.rows ||= this.block("details-" + this.index).split("\n");
    return typeof this.rows[e] === "string" ? this.rows[e] = JSON.parse(this.rows[e]) : this.rows[e];
  }

  // [file, line] of an event; most events are asked for nothing else of their row, which is not parsed for it.
  source(e) {
    const row = (this.rows ||= this.block("details-" + this.index).split("\n"))[e];
    const [file, line] = typeof row === "string" ? /^\[(\d+),(\d+)/.exec(row).slice(1).map(Number) : row;
    return [this.plan.texts[file], line];
  }

  // For how long compute waits for an event.
  exposedOf(e) {
    if (!this.exposedBy) {
      this.exposedBy = new Float64Array(this.n);
      for (const part of this.exposedParts()) this.exposedBy[part.e] += part.us;
    }
    return this.exposedBy[e];
  }

  // What an event is in the emitted C; "": not known. Texts have each number as a 9, since those of equal layers differ in numbers alone.
  statement(e) {
    const r = this.row(e), numbers = r[NUMBERS].split(" ");
    let k = 0;
    return this.plan.texts[r[STATEMENT]].replace(/9/g, () => numbers[k++]);
  }

  communicates(e) { return !["compute", "host", "update"].includes(this.plan.stream_names[this.stream[e]]); }

  // Exposed communication as diff.c sums it, [{ e, from, us }] of what is waited for: compute idles for it, or communication goes on after
  // everything else has ended.
  exposedParts() {
    if (this.parts) return this.parts;
    const compute = this.plan.stream_names.indexOf("compute"), { end } = this;
    this.parts = [];
    let busy = 0, until = 0, last = -1;
    for (let e = 0; e < this.n; e++) {
      if (this.stream[e] === compute) {
        let awaited = -1;
        for (const w of this.waits(e)) if (end[w] > (awaited < 0 ? busy : end[awaited])) awaited = w;
        if (awaited >= 0 && this.communicates(awaited)) this.parts.push({ e: awaited, from: busy, us: end[awaited] - busy });
        busy = end[e];
      }
      if (!this.communicates(e)) until = Math.max(until, end[e]);
      else if (last < 0 || end[e] > end[last]) last = e;
    }
    if (last >= 0 && end[last] > until) this.parts.push({ e: last, from: until, us: end[last] - until });
    return this.parts;
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
    this.root = { path: "", name: "", parent: null, children: NONE, list: true, hash: 0, count: 0, part: 0, mark: null, member: 0 };
    this.nodeOf = new Map(); // string of a module's path: its node
    this.made = new Map(); // key of a row: its spans
    this.open = new Set(); // keys of rows that show what is in them
    if (!program.leading) return;
    const parts = new Map(), part = s => { if (!parts.has(s)) parts.set(s, parts.size + 1); return parts.get(s); };
    const leaf = new Array(program.plan.strings.length), { order } = program.leading; // of a module: its node
    for (let k = 0; k < order.length; k++) {
      const e = order[k], module = program.module[e], what = program.op[e] * 8 + program.phase[e];
      leaf[module] ||= this.node(module, program.plan.strings[module]);
      let within = 0; // a number for the module's path within the node
      for (let node = leaf[module]; node.parent; node = node.parent) {
        node.hash = Math.imul(Math.imul(node.hash, 31) + within | 0, 31) + what | 0;
        node.count++;
        within = Math.imul(within, 31) + (node.part ||= part(node.name)) | 0;
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
        child = { name, path: node.path ? node.path + "." + name : name, parent: node, children: NONE, list: true, hash: 0, count: 0, part: 0, mark: null, member: 0 };
        node.children.set(name, child);
        if (!isNumber(name)) node.list = false; // of its children not all are numbered
      }
      node = child;
    }
    this.nodeOf.set(index, node);
    return node;
  }

  // The node of a path; undefined: the leading stream has no event in it.
  find(path) { return path.split(".").reduce((node, name) => node && node.children.get(name), this.root); }

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
    if (this.made.has(row.key)) return this.made.get(row.key);
    const p = this.program, order = p.leading.order, of = new Int32Array(p.plan.strings.length).fill(-1), mark = {};
    row.members.forEach((m, i) => { m.mark = mark; m.member = i; });
    for (const [index, start] of this.nodeOf) {
      for (let node = start; node; node = node.parent)
        if (node.mark === mark) { of[index] = node.member; break; }
    }
    const spans = { from: [], to: [], phase: [], member: [], first: [] };
    let n = -1, before = -2;
    for (let k = 0; k < order.length; k++) {
      const e = order[k], member = of[p.module[e]];
      if (member < 0) continue;
      if (before !== k - 1 || spans.member[n] !== member || spans.phase[n] !== p.phase[e]) {
        n++;
        spans.from.push(p.start[e]); spans.to.push(0); spans.phase.push(p.phase[e]); spans.member.push(member); spans.first.push(e);
      }
      spans.to[n] = p.end[e];
      before = k;
    }
    Object.assign(spans, { starts: Float64Array.from(spans.from), ends: Float64Array.from(spans.to), n: n + 1 });
    this.made.set(row.key, spans);
    return spans;
  }
}

// ── figures as people read them ──────────────────────────────────────────────────────────────────────────────────────────────
function timeText(us) {
  if (us >= 0.9995e6) return (us / 1e6).toFixed(2) + " s";
  if (us >= 0.9995e3) return (us / 1e3).toFixed(us < 1e5 ? 2 : 1) + " ms";
  return us.toFixed(us < 10 ? 2 : 1) + " us";
}
function amountText(x, unit) {
  for (const [one, name] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (x >= 0.9995 * one) return (x / one).toFixed(1) + " " + name + unit;
  return x.toFixed(0) + " " + unit;
}
function addressText(x) { return "0x" + x.toString(16).padStart(8, "0"); }
