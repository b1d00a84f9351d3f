// ── summary.js: what events in a range of time, or in a module, add up to. ───────────────────────────────────────────────────────
// A scope is { range: [from, to] } of a program, { module: a path }, or {}: the whole program. Of an event that a range cuts, the part within counts.

class Summary {
  constructor(program, { range, module }) {
    const p = this.program = program;
    this.from = range ? Math.min(...range) : 0;
    this.to = range ? Math.max(...range) : p.duration;
    this.module = module;
    this.cut = range !== undefined;
    this.events = [];
    const inside = module === undefined ? null : p.plan.strings.map(s => within(s, module));
    for (let e = 0; e < p.n; e++) if ((!inside || inside[p.module[e]]) && (!this.cut || this.share(e) > 0)) this.events.push(e);
  }

  // Microseconds of an event within the scope, and the share of the event that it is.
  time(e) { const p = this.program; return this.cut ? Math.max(0, Math.min(p.end[e], this.to) - Math.max(p.start[e], this.from)) : p.took[e]; }
  share(e) {
    const p = this.program;
    return !this.cut ? 1 : p.end[e] > p.start[e] ? this.time(e) / (p.end[e] - p.start[e]) : p.start[e] >= this.from && p.start[e] <= this.to ? 1 : 0;
  }

  // [{ name, count, us }] by what name(e) says, the longest first.
  by(name) {
    const of = new Map();
    for (const e of this.events) {
      const key = name(e);
      if (!of.has(key)) of.set(key, { name: key, count: 0, us: 0 });
      const row = of.get(key);
      row.count++;
      row.us += this.time(e);
    }
    return [...of.values()].sort((x, y) => y.us - x.us || (x.name < y.name ? -1 : 1));
  }
  ops() { const p = this.program; return this.by(e => p.text(e, OP)); }

  // Modules by their paths without numbers, down to one level below the layers, or below the module that this is of.
  modules() {
    const p = this.program, depth = this.module ? this.module.split(".").length + 1 : Infinity;
    const levels = path => { const names = pathPattern(path).split("."), star = names.indexOf("*"); return names.slice(0, depth < Infinity ? depth : star < 0 ? 2 : star + 2).join("."); };
    const of = new Map(); // by string
    return this.by(e => { const m = p.module[e]; if (!of.has(m)) of.set(m, levels(p.plan.strings[m]) || "(model)"); return of.get(m); });
  }

  // Phases: how long some event of each runs, of that beside events of other phases, and where it begins and ends.
  phases() {
    const p = this.program, edges = [], rows = this.by(e => p.plan.phases[p.phase[e]]), at = new Map(rows.map((r, i) => [r.name, i])), open = rows.map(() => 0);
    rows.forEach(r => Object.assign(r, { runs: 0, beside: 0 }));
    for (const e of this.events) {
      const k = at.get(p.plan.phases[p.phase[e]]), from = Math.max(p.start[e], this.from), to = Math.min(p.end[e], this.to);
      if (to > from) edges.push([from, k, 1], [to, k, -1]);
    }
    edges.sort((a, b) => a[0] - b[0]);
    let before = 0;
    for (const [t, k, by] of edges) {
      const running = open.filter(Boolean).length;
      if (running) open.forEach((n, i) => { if (n) { rows[i].runs += t - before; if (running > 1) rows[i].beside += t - before; } });
      open[k] += by;
      before = t;
    }
    return rows;
  }

  // [{ name, count, us }]: exposed communication, by stream and module of what is waited for.
  exposed() {
    const p = this.program, of = new Map(), mine = this.module === undefined ? null : new Set(this.events);
    for (const { e, from, us } of p.exposedParts()) {
      const part = this.cut ? Math.min(from + us, this.to) - Math.max(from, this.from) : us;
      if (part < 1e-6 || (mine && !mine.has(e))) continue; // less than a picosecond: rounding
      const name = p.plan.stream_names[p.stream[e]] + " " + (pathPattern(p.text(e, MODULE)) || "(model)");
      if (!of.has(name)) of.set(name, { name, count: 0, us: 0 });
      of.get(name).count++;
      of.get(name).us += part;
    }
    return [...of.values()].sort((x, y) => y.us - x.us || (x.name < y.name ? -1 : 1));
  }

  // Bytes that collectives send, and that copies between device and host carry.
  bytes(kind) {
    const p = this.program;
    return this.events.reduce((sum, e) => p.kind[e] === kind ? sum + p.moved[e] * this.share(e) : sum, 0);
  }

  // The event whose live set is the largest while the leading stream is within the scope; -1: there is none.
  peak(arena) {
    const p = this.program, m = p.memory(arena), lead = p.leading;
    let best = -1;
    if (!lead) return best;
    const look = k => { if (best < 0 || m.total[m.at[k]] > m.total[best]) best = m.at[k]; };
    if (this.module !== undefined) {
      const mine = new Set(this.events);
      lead.order.forEach((e, k) => { if (mine.has(e)) look(k); });
    } else for (let k = p.momentAt(this.from); k < lead.order.length && (k === p.momentAt(this.from) || lead.starts[k] < this.to); k++) look(k);
    return best;
  }

  // From the first start to the last end of its events, in the range.
  span() {
    const p = this.program;
    if (this.cut || this.module === undefined) return [this.from, this.to];
    return this.events.reduce(([a, z], e) => [Math.min(a, p.start[e]), Math.max(z, p.end[e])], [Infinity, 0]);
  }
}

// A path lies in a module: "" is the model.
function within(path, module) { return module === "" || path === module || path.startsWith(module + "."); }
