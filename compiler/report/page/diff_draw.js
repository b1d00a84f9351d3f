// ── diff_draw.js: A over B on one time axis. Draws a view of a program of both; says what lies under a point. ───────────────

const PHASE_ROW = 15, PAIR_ROW = 20, LINKS = 9, BETWEEN = 7;

class PairPainter extends Axis {
  constructor(canvas, state, diff) {
    super(canvas, state, diff.b, () => state.program.duration);
    this.diff = diff;
    this.looks = Object.fromEntries(SIDES.map(side => [side, {
      fill: e => this.fill(side, e), low: e => this.shownChange(side, e) < 0 ? 5 : 0, weight: (e, length) => length + (this.shownChange(side, e) < 0 ? 0 : 1e6),
      underlined: () => false, text: e => this.eventLabel(side, e),
    }]));
  }

  readColours() {
    super.readColours();
    this.changes = EVENT_SIGNS.map((_, c) => this.property("change-" + c));
    Object.assign(this.colour, Object.fromEntries(["same", "held", "more", "less"].map(n => [n, this.property(n)])));
  }

  // The change that an event's colour is of: that which is chosen, else its first; -1: none.
  shownChange(side, e) {
    const pair = this.state.program.pairOf[side].get(e), { only } = this.state;
    if (!pair || !pair.changes) return -1;
    return only >= 0 ? has(pair, only) ? only : -1 : 31 - Math.clz32(pair.changes & -pair.changes);
  }
  fill(side, e) {
    const c = this.shownChange(side, e);
    return c < 0 ? this.colour.same : this.changes[c];
  }
  eventLabel(side, e) {
    const p = this.state.program[side], c = this.shownChange(side, e), module = p.text(e, MODULE);
    return (c < 0 ? "" : EVENT_SIGNS[c] + " ") + p.text(e, OP) + (module ? "  " + module : "");
  }

  layout() {
    const g = this.state.program;
    let y = RULER + GAP;
    this.sections = { phases: y - GAP };
    this.phaseRows = SIDES.filter(s => g[s] && g[s].leading).map(side => {
      const row = { side, y, h: PHASE_ROW, spans: g.phaseRows[side] };
      y += PHASE_ROW;
      return row;
    });
    y += GAP;
    this.sections.streams = y - GAP;
    this.streamRows = [];
    const streams = this.diff.b.stream_names.map((_, i) => i).filter(i => SIDES.some(s => g[s] && g[s].streams.some(x => x.stream === i)));
    for (const stream of streams) {
      for (const side of SIDES) {
        const row = g[side] && g[side].streams.find(s => s.stream === stream);
        this.streamRows.push({ ...(row || { stream, name: this.diff.b.stream_names[stream], order: [], starts: [], ends: [] }), side, y, h: PAIR_ROW });
        y += PAIR_ROW + (side === "a" ? LINKS : BETWEEN);
      }
    }
    y += GAP - BETWEEN;
    this.sections.memory = y - GAP;
    this.memoryAt = y;
    this.height = y + MEMORY + 8;
  }

  drawSections() {
    const g = this.state.program, ends = SIDES.filter(s => g[s]).map(s => g[s].duration);
    this.gridOf(Object.values(this.sections), this.height, [0, ...ends]);
    this.ends();
    for (const row of this.phaseRows)
      if (this.shows(row.y, row.h)) this.spans(row.spans, row.y + 1, row.h - 2, () => this.colour.same, k => this.diff[row.side].phases[row.spans.phase[k]]);
    this.links();
    for (const row of this.streamRows) {
      if (!this.shows(row.y, row.h)) continue;
      this.strip(row, row.y + 1, row.h - 2, this.looks[row.side]);
      const p = g[row.side];
      if (p && p.leading && row.stream === p.leading.stream) this.idle(p, row, row.y + row.h / 2);
    }
    if (this.shows(this.memoryAt - GAP, MEMORY + GAP)) this.memory();
    this.marks();
  }

  // Which of the lines is whose end.
  ends() {
    const c = this.context, g = this.state.program;
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.fillStyle = this.colour.dim;
    for (const [i, side] of SIDES.entries()) {
      if (!g[side]) continue;
      const text = side.toUpperCase() + " ends: " + timeText(g[side].duration), x = this.x(g[side].duration), wide = c.measureText(text).width + 5;
      c.fillText(text, x - wide > LEFT ? x - wide : x + 5, (i ? this.sections.streams : this.sections.phases) + (GAP - 3) / 2);
    }
  }

  // From where an event is in A to where it is in B: of those that moved, or of the change that is chosen.
  links() {
    const c = this.context, g = this.state.program, { only, t0, t1 } = this.state;
    let most = 2000;
    c.lineWidth = 1;
    c.globalAlpha = .7;
    for (const pair of g.events) {
      if (pair.a < 0 || pair.b < 0 || !(only >= 0 ? has(pair, only) : pair.changes & (1 << SOONER | 1 << LATER | 1 << OTHER_STREAM))) continue;
      const a = (g.a.start[pair.a] + g.a.end[pair.a]) / 2, b = (g.b.start[pair.b] + g.b.end[pair.b]) / 2;
      if (Math.max(a, b) < t0 || Math.min(a, b) > t1 || !most--) continue;
      const from = this.rowOf("a", pair.a), to = this.rowOf("b", pair.b);
      c.strokeStyle = this.changes[this.shownChange("b", pair.b)];
      c.beginPath(); c.moveTo(this.clamped(this.x(a)), from.y + from.h - 1); c.lineTo(this.clamped(this.x(b)), to.y + 1); c.stroke();
    }
    c.globalAlpha = 1;
  }
  clamped(x) { return Math.max(-5000, Math.min(this.width + 5000, x)); }
  rowOf(side, e) { return this.streamRows.find(r => r.side === side && r.stream === this.state.program[side].stream[e]); }

  // ── memory: B as a whole line, A as a dashed one, and between them what B holds more or less ──
  memoryScale() {
    const { program: g, arena } = this.state, most = Math.max(1, ...SIDES.map(s => g[s] ? g[s].memory(arena).most : 0));
    return this.bytesScale(most, arena === DEVICE ? this.diff.b.room : 0, 1.4); // the difference of A and B shall be large
  }

  memory() {
    const c = this.context, { program: g, arena } = this.state, scale = this.memoryScale(), bottom = this.memoryAt + MEMORY, tall = MEMORY / scale.top;
    const wide = Math.ceil(this.width), curve = {};
    for (const side of SIDES) {
      const heights = curve[side] = new Float64Array(wide).fill(-1);
      if (g[side]) this.moments(g[side], arena, (x, until, e) => heights.fill(g[side].memory(arena).total[e] * tall, x, Math.ceil(until)));
    }
    const column = (x, from, to, colour) => { if (to - from >= .5) { c.fillStyle = colour; c.fillRect(x, bottom - to, 1, to - from); } };
    for (let x = LEFT; x < wide; x++) {
      const a = Math.max(0, curve.a[x]), b = Math.max(0, curve.b[x]);
      column(x, 0, curve.a[x] < 0 ? b : curve.b[x] < 0 ? a : Math.min(a, b), this.colour.held);
      if (curve.a[x] < 0 || curve.b[x] < 0) continue; // beyond the end of one
      column(x, a, b, this.colour.more);
      column(x, b, a, this.colour.less);
    }
    this.bytesLines(scale.marks, bottom, tall);
    for (const side of SIDES) this.curve(curve[side], bottom, side === "a" ? [4, 3] : [], side === "a" ? 1.2 : 1.5);
    this.roomLine(this.diff.b, scale, bottom, tall, true);
    if (arena !== DEVICE) return;
    const sides = SIDES.filter(s => g[s] && g[s].leading), at = side => sides.includes(side) && g[side].peak_event >= 0 ? this.timeOf(g[side], g[side].peak_event) : 0;
    for (const side of sides) // the texts stand away from each other
      this.peakMark(g[side], arena, g[side].peak_event, "peak of " + side.toUpperCase(), bottom, tall, side === (at("a") <= at("b") ? "a" : "b"));
  }

  curve(heights, bottom, dash, width) {
    const c = this.context;
    c.strokeStyle = this.colour.text;
    c.lineWidth = width;
    c.setLineDash(dash);
    c.beginPath();
    let before = -1;
    for (let x = LEFT; x < heights.length; x++) {
      const y = heights[x];
      if (y >= 0 && before < 0) c.moveTo(x, bottom - y);
      else if (y >= 0 && y !== before) { c.lineTo(x, bottom - before); c.lineTo(x, bottom - y); }
      else if (y < 0 && before >= 0) c.lineTo(x, bottom - before);
      before = y;
    }
    if (before >= 0) c.lineTo(heights.length, bottom - before);
    c.stroke();
    c.setLineDash([]);
  }

  // ── selection: the boxes of both sides, joined; what the selected side's event waits for; the row of the list that is open ──
  marks() {
    const c = this.context, { program: g, selection, hover, marked, side } = this.state;
    for (const pair of marked) for (const s of SIDES) if (pair[s] >= 0) this.outline(s, pair[s], this.colour.text, 1);
    const pair = selection && selection.event;
    if (pair) {
      this.joined(pair);
      for (const s of SIDES) if (pair[s] >= 0) this.outline(s, pair[s], this.colour.select, 2);
      if (pair[side] >= 0) {
        c.lineWidth = 1.5;
        for (const awaited of g[side].waits(pair[side])) this.arrow(side, awaited, pair[side], g[side].overBefore(awaited, pair[side]) ? this.colour.dim : this.colour.arrow);
      }
    }
    if (selection && selection.storage) for (const s of SIDES) if (selection.storage[s] >= 0 && g[s]) this.life(s, selection.storage[s]);
    if (hover && hover.event !== undefined) {
      const under = g.event(hover.side, hover.event);
      for (const s of SIDES) if (under[s] >= 0) this.outline(s, under[s], this.colour.text, 1);
    }
  }

  box(side, e) {
    const p = this.state.program[side], row = this.rowOf(side, e);
    return [this.x(p.start[e]), this.x(p.end[e]), row.y, row.h];
  }
  outline(side, e, colour, width) {
    const c = this.context, [x0, x1, y, h] = this.box(side, e), from = this.clamped(x0), to = this.clamped(x1);
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.strokeRect(from - 1, y + .5, Math.max(3, to - from) + 1, h - 1);
  }
  joined(pair) {
    if (pair.a < 0 || pair.b < 0) return;
    const c = this.context, [a0, a1, ay, ah] = this.box("a", pair.a), [b0, b1, by] = this.box("b", pair.b);
    c.fillStyle = this.colour.select;
    c.globalAlpha = .5;
    c.beginPath(); c.moveTo(this.clamped(a0), ay + ah); c.lineTo(this.clamped(Math.max(a1, a0 + 2)), ay + ah); c.lineTo(this.clamped(Math.max(b1, b0 + 2)), by); c.lineTo(this.clamped(b0), by); c.fill();
    c.globalAlpha = 1;
  }
  arrow(side, from, to, colour) {
    const c = this.context, a = this.box(side, from), b = this.box(side, to), x0 = this.clamped(a[1]), x1 = this.clamped(b[0]), y0 = a[2] + a[3] / 2, y1 = b[2] + b[3] / 2, bend = Math.max(14, Math.abs(x1 - x0) / 3);
    c.strokeStyle = c.fillStyle = colour;
    c.beginPath(); c.moveTo(x0, y0); c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1); c.stroke();
    c.beginPath(); c.moveTo(x1, y1); c.lineTo(x1 - 7, y1 - 4); c.lineTo(x1 - 7, y1 + 4); c.fill();
  }
  // When the bytes of a storage are in use: a bar at the foot of the curves, A's above B's.
  life(side, index) {
    const c = this.context, p = this.state.program[side], x0 = this.clamped(this.x(p.from[index])), x1 = this.clamped(this.x(p.to[index])), y = this.memoryAt + MEMORY - (side === "a" ? 16 : 8);
    if (!(x1 > x0)) return;
    c.fillStyle = this.colour.select;
    c.fillRect(x0, y, Math.max(2, x1 - x0), 6);
    c.font = "10px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.fillText(side.toUpperCase(), Math.max(LEFT + 2, x0 - 10), y + 3);
  }

  // ── what lies under a point of the canvas ──
  hit(x, canvasY) {
    const y = canvasY + this.top, t = this.time(x);
    if (x < LEFT || canvasY < RULER) return {};
    for (const row of this.streamRows)
      if (y >= row.y && y < row.y + row.h) {
        const e = this.nearest(row, t, 3 / this.scale);
        const held = this.held(this.state.program[row.side], row, t);
        return e >= 0 ? { side: row.side, event: e } : held >= 0 ? { side: row.side, held } : { side: row.side, stream: row.stream };
      }
    for (const row of this.phaseRows)
      if (y >= row.y && y < row.y + row.h) {
        const k = above(row.spans.starts, t) - 1;
        return k >= 0 && row.spans.ends[k] > t ? { side: row.side, phase: k } : {};
      }
    return y >= this.memoryAt && y < this.memoryAt + MEMORY ? { memory: true } : {};
  }
}
