// ── draw.js: a plan's timeline. Draws a view of a program; says what lies under a point. Changes nothing else. ──────────────

const STREAM_ROW = 26, ACTUAL_ROW = 18, MODULE_ROW = 19, ADDRESSES = 220, MOST_ADDRESSES = 640; // of addresses: the least and the most pixels

class Painter extends Axis {
  constructor(canvas, state) {
    super(canvas, state, state.plan, () => state.program.duration);
    const p = () => this.state.program;
    const dimmed = e => this.state.critical && p().slack[e] > 0;
    this.room = 0; // pixels of the window that the stage may fill
    this.mapHeight = ADDRESSES;
    this.look = { fill: e => dimmed(e) ? this.colour.band : this.fills[p().phase[e]][p().kind[e]], underlined: e => p().kind[e] >= COLLECTIVE && !dimmed(e),
      text: e => dimmed(e) ? "" : this.eventLabel(e), weight: (e, part) => dimmed(e) ? part / 1e3 : part };
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
    this.mapHeight = Math.min(Math.max(ADDRESSES, this.room - y - 8), MOST_ADDRESSES); // fills the window
    this.height = y + this.mapHeight + 8;
  }

  drawPixels() { this.addresses(); }

  drawSections() {
    this.gridOf(Object.values(this.sections), this.addressesAt - GAP, [0, this.state.program.duration]);
    for (const row of this.streamRows) if (this.shows(row.y, row.h)) this.streamRow(row);
    for (const row of this.moduleRows) if (this.shows(row.y, row.h)) this.moduleRow(row);
    if (this.shows(this.memoryAt - GAP, MEMORY + GAP)) this.memory();
    this.marks();
    if (this.drawn) this.drawn();
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

  // ── address × time, written as pixels ──
  // The addresses that are seen, and how many pixels a byte has.
  get map() { const { addresses, arena, plan } = this.state; return addresses || [0, Math.max(plan.arena_bytes[arena], 1)]; }
  get mapScale() { const [from, to] = this.map; return this.mapHeight / (to - from); }
  addressAt(y) { return this.map[0] + (y - this.addressesAt) / this.mapScale; }

  // A pixel that one class covers has its colour. One that several share, or none in part, has the colour that is owed most, down its column: what a
  // colour covers and has not been given. So each class has the area that its bytes have for their time, and free stays free.
  addresses() {
    const { arena, plan, program: p, t0, t1 } = this.state, r = this.ratio, lowest = this.map[0];
    const top = Math.max(0, this.addressesAt - this.top), foot = Math.min(this.visible, this.addressesAt + this.mapHeight - this.top);
    if (foot <= top) return;
    const left = Math.round(LEFT * r), w = this.canvas.width - left, first = Math.round(top * r), h = Math.round(foot * r) - first;
    if (w <= 0 || h <= 0) return;
    const classes = plan.classes.length, column = h * classes;
    if (!this.image || this.image.width !== w || this.image.height !== h) {
      this.image = this.context.createImageData(w, h);
      this.more = new Float32Array((w + 2) * column); // by column, row and class: how much more of a pixel is covered than of the one to its left
    }
    const out = new Uint32Array(this.image.data.buffer), [gr, gg, gb] = rgb(this.colour.band), free = (255 << 24 | gb << 16 | gg << 8 | gr) >>> 0, { more } = this;
    const origin = (this.addressesAt - this.top) * r - first, tall = this.mapScale * r, scale = this.scale * r, changed = new Uint8Array(w + 2), large = [];
    more.fill(0);
    const within = (x, most) => Math.min(Math.max(x, 0), most);
    for (const s of p.storages) { // rectangles do not overlap
      if (s.arena !== arena || p.from[s.index] > t1 || p.to[s.index] < t0) continue;
      const x0 = within((p.from[s.index] - t0) * scale, w), x1 = within((p.to[s.index] - t0) * scale, w);
      const y0 = within(origin + (s.offset - lowest) * tall, h), y1 = within(origin + (s.offset + s.size - lowest) * tall, h);
      if (!(x1 > x0 && y1 > y0)) continue;
      const from = Math.floor(x0), to = Math.floor(x1), f0 = x0 - from, f1 = x1 - to;
      changed[from] = changed[from + 1] = changed[to] = changed[to + 1] = 1;
      for (let y = Math.floor(y0); y < y1; y++) {
        const high = Math.min(y + 1, y1) - Math.max(y, y0), at = y * classes + s.cls;
        more[from * column + at] += high * (1 - f0);
        more[(from + 1) * column + at] += high * f0;
        more[to * column + at] -= high * (1 - f1);
        more[(to + 1) * column + at] -= high * f1;
      }
      if (x1 - x0 > 4 && y1 - y0 > 4) large.push(s.cls, Math.ceil(x0), to, Math.ceil(y0), Math.floor(y1));
    }
    const covered = new Float32Array(column), owed = new Float64Array(classes + 1), least = 1e-3; // the last that is owed: free; less than that is rounding
    for (let x = 0; x < w; x++) {
      if (x && !changed[x]) {
        for (let i = x; i < w * h; i += w) out[i] = out[i - 1];
        continue;
      }
      owed.fill(0);
      for (let y = 0, at = 0; y < h; y++) {
        let rest = 1, parts = 0, one = classes;
        for (let c = 0; c < classes; c++, at++) {
          const part = covered[at] += more[x * column + at];
          if (part > least) { rest -= part; parts++; one = c; }
        }
        if (rest > least) parts++;
        if (parts > 1) {
          one = rest > least ? classes : one;
          owed[classes] += Math.max(rest, 0);
          for (let c = 0, k = at - classes; c < classes; c++, k++) {
            if (covered[k] <= least) continue;
            owed[c] += covered[k];
            if (owed[c] > owed[one]) one = c;
          }
          owed[one]--;
        }
        out[y * w + x] = one < classes ? this.words[one] : free;
      }
    }
    for (let i = 0; i < large.length; i += 5) { // its last row and column are darker
      const [cls, x0, x1, y0, y1] = large.slice(i, i + 5), edge = this.edges[cls];
      out.fill(edge, (y1 - 1) * w + x0, (y1 - 1) * w + x1);
      for (let y = y0; y < y1; y++) out[y * w + x1 - 1] = edge;
    }
    this.context.putImageData(this.image, left, first);
  }

  // ── selection and waits, over everything ──
  marks() {
    const c = this.context, { program: p, selection, hover } = this.state;
    if (hover && hover.storage !== undefined) this.outlineStorage(hover.storage, this.colour.text, 1);
    if (selection && selection.range) this.shade(...selection.range);
    if (selection && selection.module !== undefined) for (const row of this.moduleRows) row.members.forEach((m, i) => { if (m.path === selection.module) this.outlineModule(row, i); });
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

  // A range of time, over all rows.
  shade(a, z) {
    const c = this.context, x0 = this.x(Math.min(a, z)), x1 = this.x(Math.max(a, z));
    c.fillStyle = this.colour.select;
    c.globalAlpha = .12;
    c.fillRect(x0, this.top, x1 - x0, this.visible);
    c.globalAlpha = 1;
    for (const x of [x0, x1]) c.fillRect(Math.round(x), this.top, 1, this.visible);
  }

  outlineModule(row, member) {
    const c = this.context, s = row.spans;
    c.strokeStyle = this.colour.select;
    c.lineWidth = 2;
    for (let k = 0; k < s.n; k++) {
      if (s.member[k] !== member) continue;
      const x0 = Math.max(this.x(s.from[k]), LEFT - 4), x1 = Math.min(this.x(s.to[k]), this.width + 4);
      if (x1 > x0) c.strokeRect(x0, row.y + 1, Math.max(2, x1 - x0), row.h - 3);
    }
  }

  box(e) {
    const p = this.state.program, row = this.streamRows.find(r => r.stream === p.stream[e]);
    return [this.x(p.start[e]), this.x(p.end[e]), row.y];
  }

  outlineStorage(index, colour, width) {
    const c = this.context, { program: p, plan, arena } = this.state, s = plan.storages[index];
    if (s.arena !== arena) return;
    const [from, to] = this.map, tall = this.mapScale, x0 = this.x(p.from[index]), x1 = this.x(p.to[index]), low = Math.max(s.offset, from), high = Math.min(s.offset + s.size, to);
    if (high < low) return;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.strokeRect(Math.max(x0, LEFT - 4), this.addressesAt + (low - from) * tall, Math.min(x1, this.width + 4) - Math.max(x0, LEFT - 4), Math.max(1, (high - low) * tall));
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
    if (y >= this.addressesAt && y < this.addressesAt + this.mapHeight) {
      const near = this.storagesAt(x, y - this.addressesAt);
      return near.length ? { storage: near[0], storages: near } : {};
    }
    return {};
  }

  // Storages within half a pixel of a point of the map, the most likely one first: what is smaller than a pixel where the point is nearest to its
  // middle, then what holds the point.
  storagesAt(x, y) {
    const { program: p, arena } = this.state, [lowest] = this.map, tall = this.mapScale, found = [];
    const off = (at, from, to) => at >= from && at < to || to - from < 1 ? Math.min(.5, Math.abs(at - (from + to) / 2)) : 1;
    for (const s of p.storages) {
      if (s.arena !== arena) continue;
      const y0 = (s.offset - lowest) * tall, y1 = y0 + s.size * tall, x0 = this.x(p.from[s.index]), x1 = this.x(p.to[s.index]);
      if (y1 > y - .5 && y0 < y + .5 && x1 > x - .5 && x0 < x + .5) found.push([Math.max(off(x, x0, x1), off(y, y0, y1)), s.index]);
    }
    return found.filter(f => f[0] < 1).sort((a, b) => a[0] - b[0]).map(f => f[1]);
  }
}
