// ── diff.js: two plans and what differs between them. Knows neither the document nor the canvas. ────────────────────────────
// A pair is { a, b, changes, places }: the indices of an event (or storage) in A and in B, -1 where a plan has none of it, and a bit for
// each change. Changes are in the order of diff.h.

const SIDES = ["a", "b"];
const ADDED = 0, REMOVED = 1, OTHER_OP = 2, OTHER_STREAM = 3, SOONER = 4, LATER = 5, LONGER = 6, SHORTER = 7, OTHER_WAITS = 8;
const GREW = 2, SHRANK = 3, OTHER_CLASS = 4, OTHER_ARENA = 5;
// Beside its colour each change has a sign.
const EVENT_SIGNS = ["+", "−", "≠", "⇅", "←", "→", "▲", "▼", "…"], STORAGE_SIGNS = ["+", "−", "▲", "▼", "≠", "⇅", "…"];
const EVENT_KIND = { name: "event", key: "events", signs: EVENT_SIGNS }, STORAGE_KIND = { name: "storage", key: "storages", signs: STORAGE_SIGNS };

function has(pair, change) { return pair.changes >> change & 1; }
function changesOf(pair, names) { return names.filter((_, c) => has(pair, c)); }

function readDiff(block) {
  const d = JSON.parse(block("diff"));
  for (const side of SIDES) d[side] = readPlan(name => block(side + "-" + name));
  const storages = g => pairs(g.storages, 3, ([a, b, changes]) => ({ a, b, changes, places: 0 }));
  d.shared = storages(d.programs[0]); // that outlive programs
  d.programs = d.programs.slice(1).map(g => new DiffProgram(d, g, storages(g)));
  d.shown--;
  return d;
}

function pairs(list, columns, make) {
  return Array.from({ length: list.length / columns }, (_, i) => make(list.slice(i * columns, (i + 1) * columns)));
}

class DiffProgram {
  constructor(diff, g, storages) {
    Object.assign(this, { diff, name: g.name, indices: g, storages, made: false });
    this.events = pairs(g.events, 4, ([a, b, changes, places]) => ({ a, b, changes, places }));
  }

  // What drawing and questions need; made when the program is first shown. a, b: its programs in the plans, null where there is none.
  prepare() {
    if (this.made) return this;
    this.made = true;
    for (const side of SIDES) this[side] = this.indices[side] < 0 ? null : this.diff[side].programs[this.indices[side]].prepare();
    this.pairOf = { a: new Map(), b: new Map() }; // of an event that changed
    for (const pair of this.events) for (const side of SIDES) if (pair[side] >= 0) this.pairOf[side].set(pair[side], pair);
    this.byId = { a: this.index("a"), b: this.index("b") };
    this.counts = { events: this.count(this.events, this.diff.event_changes), storages: this.count(this.storages, this.diff.storage_changes) };
    // In the order of time, for the keys: where it stands in B, or in A.
    const time = pair => pair.b >= 0 ? this.b.start[pair.b] : this.a.start[pair.a];
    this.inTime = [...this.events].sort((x, y) => time(x) - time(y) || x.b - y.b || x.a - y.a);
    this.duration = Math.max(...SIDES.map(s => this[s] ? this[s].duration : 0));
    this.phaseRows = Object.fromEntries(SIDES.map(s => [s, this[s] && phaseSpans(this[s])]));
    return this;
  }

  index(side) {
    return new Map(this[side] ? this[side].ids.map((id, e) => [id, e]) : []);
  }

  count(list, names) { return names.map((_, c) => list.reduce((n, pair) => n + has(pair, c), 0)); }

  // The pair of any event: of one that has not changed, it is made.
  event(side, e) {
    const pair = this.pairOf[side].get(e);
    if (pair) return pair;
    const other = side === "a" ? "b" : "a", found = this.byId[other].get(this[side].id(e));
    return { [side]: e, [other]: found === undefined ? -1 : found, changes: 0, places: 0 };
  }
  storage(side, i) {
    const pair = [...this.storages, ...this.diff.shared].find(p => p[side] === i);
    if (pair) return pair;
    const other = side === "a" ? "b" : "a", name = this.diff[side].storages[i].name, there = this[other] ? this[other].storages : this.diff[other].lasting;
    const found = there.find(s => s.name === name && (s.program < 0) === (this.diff[side].storages[i].program < 0));
    return { [side]: i, [other]: found ? found.index : -1, changes: 0, places: 0 };
  }

  // ── words ──
  id(pair) { return pair.b >= 0 ? this.b.id(pair.b) : this.a.id(pair.a); }
  of(side, pair) { // its operation as people say it
    const p = this[side], e = pair[side];
    return p.text(e, OP) + "  " + p.plan.phases[p.phase[e]] + " " + (pathPattern(p.text(e, MODULE)) || "(model)");
  }
  stream(side, pair) { return this[side].plan.stream_names[this[side].stream[pair[side]]]; }
  storageName(pair) { return this.sideOf(pair)[1].name; }
  sideOf(pair) { return pair.b >= 0 ? ["b", this.diff.b.storages[pair.b]] : ["a", this.diff.a.storages[pair.a]]; }
  storageOf(side, pair) {
    const s = this.diff[side].storages[pair[side]];
    return this.diff[side].classes[s.cls] + "  " + (pathPattern(s.owner) || "(model)");
  }

  // What equal layers have in common of a change, as `shardc diff` prints it.
  whatEvent(pair, c) {
    const from = pair.a >= 0 ? "a" : "b", to = pair.b >= 0 ? "b" : "a";
    if (c === OTHER_OP) return this.of(from, pair) + "  ->  " + this.of(to, pair);
    if (c === OTHER_STREAM) return this.of(to, pair) + "  from " + this.stream(from, pair) + " to " + this.stream(to, pair);
    return this.of(to, pair) + "  on " + this.stream(to, pair);
  }
  whatStorage(pair, c) {
    const from = pair.a >= 0 ? "a" : "b", to = pair.b >= 0 ? "b" : "a", said = this.storageOf(to, pair);
    if (c === OTHER_CLASS) return this.storageOf(from, pair) + "  ->  " + said;
    if (c === OTHER_ARENA) return said + "  now on the " + (this.diff[to].storages[pair[to]].arena ? "host" : "device");
    return said;
  }

  // Microseconds of an event, bytes of a storage; 0 where it is not there.
  amount(kind, side, pair) {
    if (pair[side] < 0) return 0;
    return kind === EVENT_KIND ? this[side].took[pair[side]] : this.diff[side].storages[pair[side]].size;
  }

  // The most bytes of these storages that are alive while an event is issued.
  mostAtOnce(side, list) {
    const steps = list.filter(pair => pair[side] >= 0).map(pair => this.diff[side].storages[pair[side]]).flatMap(s => [[s.first, s.size], [s.program < 0 ? Infinity : s.last + 1, -s.size]]);
    let now = 0, most = 0;
    for (const [, bytes] of steps.sort((x, y) => x[0] - y[0] || x[1] - y[1])) { now += bytes; most = Math.max(most, now); }
    return most;
  }

  // [{ change, what, pairs, from, to, least, most }] of pairs that changed: equal layers are one row, the largest first. only: one change, or -1.
  rows(kind, list, only) {
    const rows = new Map(), names = kind === EVENT_KIND ? this.diff.event_changes : this.diff.storage_changes;
    for (const pair of list)
      for (let c = 0; c < names.length; c++) {
        if (!has(pair, c) || (only >= 0 && c !== only)) continue;
        const what = kind === EVENT_KIND ? this.whatEvent(pair, c) : this.whatStorage(pair, c), key = c + " " + what;
        if (!rows.has(key)) rows.set(key, { change: c, what, pairs: [], from: 0, to: 0, least: pair.places, most: pair.places });
        const row = rows.get(key);
        row.pairs.push(pair);
        if (kind === EVENT_KIND) {
          row.from += this.amount(kind, "a", pair);
          row.to += this.amount(kind, "b", pair);
        }
        row.least = Math.min(row.least, pair.places);
        row.most = Math.max(row.most, pair.places);
      }
    if (kind === STORAGE_KIND)
      for (const row of rows.values()) {
        row.from = this.mostAtOnce("a", row.pairs);
        row.to = this.mostAtOnce("b", row.pairs);
      }
    const moved = c => kind === EVENT_KIND && (c === SOONER || c === LATER), size = row => moved(row.change) ? Math.max(Math.abs(row.least), Math.abs(row.most)) : Math.abs(row.to - row.from);
    return [...rows.values()].sort((x, y) => x.change - y.change || size(y) - size(x) || y.pairs.length - x.pairs.length || (x.what < y.what ? -1 : 1));
  }

  // ── search: whether every word is in what is said of an event or a storage, on either side ──
  holds(kind, pair, words) {
    const names = kind === EVENT_KIND ? this.diff.event_changes : this.diff.storage_changes;
    let text = changesOf(pair, names).join(" ");
    for (const side of SIDES) {
      if (pair[side] < 0) continue;
      const p = this[side];
      if (kind === EVENT_KIND) text += " " + p.id(pair[side]) + " " + p.text(pair[side], OP) + " " + p.text(pair[side], MODULE) + " " + p.plan.phases[p.phase[pair[side]]] + " " + this.stream(side, pair);
      else { const s = this.diff[side].storages[pair[side]]; text += " " + s.name + " " + s.owner + " " + this.diff[side].classes[s.cls]; }
    }
    text = text.toLowerCase();
    return words.every(w => text.includes(w));
  }

  // Events and storages that have not changed and hold every word: { events, storages, total }, at most so many of each.
  unchanged(words, most) {
    const out = { events: [], storages: [], total: 0 }, changed = new Set([...this.storages, ...this.diff.shared].map(p => p.b));
    if (!this.a || !this.b) return out;
    const add = (kind, pair) => {
      if (!this.holds(kind, pair, words)) return;
      out.total++;
      if (out[kind.key].length < most) out[kind.key].push(pair);
    };
    for (let e = 0; e < this.b.n; e++) if (!this.pairOf.b.has(e)) add(EVENT_KIND, this.event("b", e));
    const byName = new Map(this.a.storages.map(s => [(s.program < 0) + s.name, s.index]));
    for (const s of this.b.storages) if (!changed.has(s.index)) add(STORAGE_KIND, { a: byName.get((s.program < 0) + s.name) ?? -1, b: s.index, changes: 0, places: 0 });
    return out;
  }
}

// Runs of one phase on the leading stream.
function phaseSpans(p) {
  const order = p.leading ? p.leading.order : [], starts = [], ends = [], phase = [];
  for (const e of order) {
    if (phase.at(-1) !== p.phase[e]) { starts.push(p.start[e]); ends.push(0); phase.push(p.phase[e]); }
    ends[ends.length - 1] = p.end[e];
  }
  return { starts: Float64Array.from(starts), ends: Float64Array.from(ends), phase, n: phase.length };
}

// ── figures of both sides ────────────────────────────────────────────────────────────────────────────────────────────────────
const MEASURES = { bytes: x => bytesText(x), time: x => timeText(x), count: x => grouped(x), share: x => x.toFixed(3) };
function same(a, b) { return Math.abs(b - a) < 1e-6; } // as diff.h says: less than a byte or a picosecond
function seenSame(measure, a, b) { return same(a, b) || MEASURES[measure](Math.abs(b - a)) === MEASURES[measure](0); } // it would be shown as 0
function shareText(x) { return x < 5e-5 ? "<0.01 %" : (100 * x).toFixed(x < .1 ? 2 : x < 100 ? 1 : 0) + " %"; }
// "+1.2 MiB (+3.40 %)"
function deltaText(measure, a, b) {
  if (seenSame(measure, a, b)) return "the same";
  return (b > a ? "+" : "−") + MEASURES[measure](Math.abs(b - a)) + (a !== 0 && b !== 0 ? " (" + (b > a ? "+" : "−") + shareText(Math.abs(b / a - 1)) + ")" : "");
}
function placesText(least, most) {
  const [low, high] = [Math.abs(least), Math.abs(most)].sort((x, y) => x - y);
  return "past " + (low === high ? "" : low + " to ") + high + (high === 1 ? " event" : " events");
}
