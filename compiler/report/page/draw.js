// ── draw.js: a plan's timeline. Draws a view of a program; says what lies under a point. Changes nothing else. ──────────────

const STREAM_ROW = 26, ACTUAL_ROW = 18, MODULE_ROW = 19, ADDRESSES = 220;

class Painter extends Axis {
  constructor(canvas, state) {
    super(canvas, state, state.plan, () => state.program.duration);
    const p = () => this.state.program;
    this.look = { fill: e => this.fills[p().phase[e]][p().kind[e]], underlined: e => p().kind[e] >= COLLECTIVE, text: e => this.eventLabel(e) };
  }

  readColours() {
    super.readColours();
    const word = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
    this.words = this.classes.map(c => word(rgb(c)));
    this.edges = this.classes.map(c => word(rgb(c).map(x => x * .72 | 0)));
  }

  // Where sections and their rows lie, from the top of the stage; called when the program or what is folded changes.
  layout() {
    const p = this.state.program, rows = [];
    let y = RULER + GAP;
    this.sections = { streams: y - GAP };
    this.streamRows = p.streams.map(s => { // where a run is shown, its times stand below the predicted ones
      const row = { ...s, y, h: STREAM_ROW + (this.state.actual && s.actual ? ACTUAL_ROW : 0) };
      y += row.h;
      return row;
    });
    y += GAP;
    this.sections.modules = y - GAP;
    for (const row of p.modules.rows()) {
      rows.push({ ...row, y, h: MODULE_ROW, spans: p.modules.spans(row) });
      y += MODULE_ROW;
    }
    this.moduleRows = rows;
    y += GAP;
    this.sections.memory = y - GAP;
    this.memoryAt = y;
    y += MEMORY + GAP;
    this.sections.addresses = y - GAP;
    this.addressesAt = y;
    this.height = y + ADDRESSES + 8;
  }

  drawPixels() { this.addresses(); }

  drawSections() {
    this.gridOf(Object.values(this.sections), this.addressesAt - GAP, [0, this.state.program.duration]);
    for (const row of this.streamRows) if (this.shows(row.y, row.h)) this.streamRow(row);
    for (const row of this.moduleRows) if (this.shows(row.y, row.h)) this.moduleRow(row);
    if (this.shows(this.memoryAt - GAP, MEMORY + GAP)) this.memory();
    this.marks();
  }

  // ── streams ──
  streamRow(row) {
    this.strip(row, row.y + 2, STREAM_ROW - 4, this.look);
    if (row.stream === this.state.program.leading.stream) this.idle(this.state.program, row, row.y + STREAM_ROW / 2);
    if (row.h > STREAM_ROW) this.strip(row.actual, row.y + STREAM_ROW - 1, ACTUAL_ROW - 3, this.look);
  }

  eventLabel(e) {
    const p = this.state.program, module = p.text(e, MODULE);
    return p.text(e, OP) + (module ? "  " + module : "");
  }

  moduleRow(row) {
    const s = row.spans, several = row.members.length > 1;
    this.spans(s, row.y + 1, row.h - 3, k => this.fills[s.phase[k]][several && s.member[k] % 2 ? KERNEL : MATMUL], // neighbours differ
      k => several ? row.members[s.member[k]].name : this.state.plan.phases[s.phase[k]]);
  }

  // ── memory ──
  memoryScale() {
    const { plan, program, arena } = this.state;
    return this.bytesScale(Math.max(program.memory(arena).most, 1), arena === DEVICE ? plan.room : 0, 3);
  }

  memory() {
    const c = this.context, { program: p, arena, plan } = this.state, m = p.memory(arena), scale = this.memoryScale();
    const classes = plan.classes.length, bottom = this.memoryAt + MEMORY, tall = MEMORY / scale.top;
    this.bytesLines(scale.marks, bottom, tall);
    if (!p.leading) return;
    this.moments(p, arena, (x, until, e) => {
      let sum = 0, y = bottom;
      for (let i = 0; i < classes; i++) {
        const bytes = m.of[e * classes + i];
        if (!bytes) continue;
        sum += bytes;
        const to = Math.round(bottom - sum * tall);
        if (to < y) { c.fillStyle = this.classes[i]; c.fillRect(x, to, until - x, y - to); }
        y = to;
      }
    });
    this.roomLine(plan, scale, bottom, tall);
    if (arena === DEVICE) this.peakMark(p, arena, p.peak_event, "peak", bottom, tall, false);
  }

  // ── address × time, written as pixels: rectangles do not overlap, so their area is the canvas's at most ──
  addresses() {
    const { program: p, arena, plan } = this.state, r = this.ratio, whole = Math.max(plan.arena_bytes[arena], 1);
    const y0 = Math.max(0, this.addressesAt - this.top), y1 = Math.min(this.visible, this.addressesAt + ADDRESSES - this.top);
    if (y1 <= y0) return;
    const left = Math.round(LEFT * r), w = this.canvas.width - left, first = Math.round(y0 * r), h = Math.round(y1 * r) - first;
    if (w <= 0 || h <= 0) return;
    if (!this.image || this.image.width !== w || this.image.height !== h) this.image = this.context.createImageData(w, h);
    const out = new Uint32Array(this.image.data.buffer), [gr, gg, gb] = rgb(this.colour.band);
    out.fill((255 << 24 | gb << 16 | gg << 8 | gr) >>> 0);
    const origin = (this.addressesAt - this.top) * r - first, tall = ADDRESSES * r / whole, scale = this.scale * r, { t0, t1 } = this.state;
    for (const s of p.storages) {
      if (s.arena !== arena || p.from[s.index] > t1 || p.to[s.index] < t0) continue;
      const x0 = Math.max(0, Math.round((p.from[s.index] - t0) * scale)), x1 = Math.min(w, Math.max(x0 + 1, Math.round((p.to[s.index] - t0) * scale)));
      const a = Math.max(0, Math.round(origin + s.offset * tall)), b = Math.min(h, Math.max(a + 1, Math.round(origin + (s.offset + s.size) * tall)));
      const fill = this.words[s.cls], edge = this.edges[s.cls], edged = x1 - x0 > 3 && b - a > 3;
      for (let y = a; y < b; y++) {
        const at = y * w;
        out.fill(edged && y === b - 1 ? edge : fill, at + x0, at + x1);
        if (edged) out[at + x1 - 1] = edge;
      }
    }
    this.context.putImageData(this.image, left, first);
  }

  // ── selection and waits, over everything ──
  marks() {
    const c = this.context, { program: p, selection, hover } = this.state;
    if (hover && hover.storage !== undefined) this.outlineStorage(hover.storage, this.colour.text, 1);
    if (selection && selection.storage !== undefined) this.outlineStorage(selection.storage, this.colour.select, 2.5);
    if (selection && selection.event !== undefined) {
      const e = selection.event;
      for (const column of [READS, WRITES]) for (let i = 0; i < p.row(e)[column].length; i += 3) this.outlineStorage(p.row(e)[column][i], this.colour.select, column === WRITES ? 2 : 1);
      const [x0, x1, y] = this.box(e);
      c.strokeStyle = this.colour.select;
      c.lineWidth = 2;
      c.strokeRect(x0 - 1, y + 1, Math.max(3, x1 - x0) + 1, STREAM_ROW - 2);
      if (this.state.actual && p.actual) c.strokeRect(this.x(p.actual.start[e]) - 1, y + STREAM_ROW - 1, Math.max(3, this.x(p.actual.end[e]) - this.x(p.actual.start[e])) + 1, ACTUAL_ROW - 3);
      c.lineWidth = 1.5;
      for (const awaited of p.waits(e)) this.arrow(awaited, e, p.overBefore(awaited, e) ? this.colour.dim : this.colour.arrow, false);
      for (const x of p.waiting(e)) this.arrow(e, x, this.colour.dim, true);
    }
    if (hover && hover.event !== undefined) {
      const [x0, x1, y] = this.box(hover.event);
      c.strokeStyle = this.colour.text;
      c.lineWidth = 1;
      c.strokeRect(x0 - .5, y + 1.5, Math.max(2, x1 - x0), STREAM_ROW - 3);
    }
  }

  box(e) {
    const p = this.state.program, row = this.streamRows.find(r => r.stream === p.stream[e]);
    return [this.x(p.start[e]), this.x(p.end[e]), row.y];
  }

  outlineStorage(index, colour, width) {
    const c = this.context, { program: p, plan, arena } = this.state, s = plan.storages[index];
    if (s.arena !== arena) return;
    const tall = ADDRESSES / Math.max(1, plan.arena_bytes[arena]), x0 = this.x(p.from[index]), x1 = this.x(p.to[index]);
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.strokeRect(Math.max(x0, LEFT - 4), this.addressesAt + s.offset * tall, Math.min(x1, this.width + 4) - Math.max(x0, LEFT - 4), Math.max(1, s.size * tall));
  }

  // From the end of an event to the start of one that waits for it.
  arrow(from, to, colour, dashed) {
    const c = this.context, clamp = x => Math.max(-2000, Math.min(this.width + 2000, x)), a = this.box(from), b = this.box(to);
    const x0 = clamp(a[1]), x1 = clamp(b[0]), y0 = a[2] + STREAM_ROW / 2, y1 = b[2] + STREAM_ROW / 2, bend = Math.max(14, Math.abs(x1 - x0) / 3);
    c.strokeStyle = c.fillStyle = colour;
    c.setLineDash(dashed ? [4, 3] : []);
    c.beginPath(); c.moveTo(x0, y0); c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1); c.stroke();
    c.setLineDash([]);
    c.beginPath(); c.moveTo(x1, y1); c.lineTo(x1 - 7, y1 - 4); c.lineTo(x1 - 7, y1 + 4); c.fill();
  }

  // ── what lies under a point of the canvas ──
  hit(x, canvasY) {
    const y = canvasY + this.top, t = this.time(x), p = this.state.program;
    if (x < LEFT || canvasY < RULER) return {};
    for (const row of this.streamRows)
      if (y >= row.y && y < row.y + row.h) {
        const predicted = y < row.y + STREAM_ROW, e = this.nearest(predicted ? row : row.actual, t, 3 / this.scale), held = predicted ? this.held(p, row, t) : -1;
        return e >= 0 ? { event: e, stream: row.stream } : held >= 0 ? { held, stream: row.stream } : { stream: row.stream };
      }
    for (const row of this.moduleRows)
      if (y >= row.y && y < row.y + row.h) {
        const k = above(row.spans.starts, t) - 1;
        return k >= 0 && row.spans.ends[k] > t ? { row, span: k } : { row };
      }
    if (y >= this.memoryAt && y < this.memoryAt + MEMORY) return { memory: true };
    if (y >= this.addressesAt && y < this.addressesAt + ADDRESSES) {
      const address = (y - this.addressesAt) / ADDRESSES * this.state.plan.arena_bytes[this.state.arena];
      const s = p.storages.find(s => s.arena === this.state.arena && p.from[s.index] <= t && t < p.to[s.index] && s.offset <= address && address < s.offset + s.size);
      return s ? { storage: s.index } : {};
    }
    return {};
  }
}
