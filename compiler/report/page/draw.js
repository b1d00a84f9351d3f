// ── draw.js: the timeline on its canvas. Draws a view of a program; says what lies under a point. Changes nothing else. ──────
// One time axis: x = left + (t - t0) * scale for every section. Whatever is narrower than a pixel is drawn as one pixel.

const LEFT = 150, RULER = 24, STREAM_ROW = 26, ACTUAL_ROW = 18, MODULE_ROW = 19, GAP = 22, MEMORY = 170, ADDRESSES = 220;

class Painter {
  constructor(canvas, state) {
    this.canvas = canvas;
    this.state = state;
    this.context = canvas.getContext("2d", { alpha: false });
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement), get = name => style.getPropertyValue("--" + name).trim();
    this.colour = Object.fromEntries(["ground", "panel", "text", "dim", "line", "ink", "cursor", "budget", "select", "arrow", "band"].map(n => [n, get(n)]));
    this.classes = this.state.plan.classes.map((_, i) => get("class-" + i));
    this.words = this.classes.map(c => { const [r, g, b] = rgb(c); return (255 << 24 | b << 16 | g << 8 | r) >>> 0; });
    this.edges = this.classes.map(c => { const [r, g, b] = rgb(c).map(x => x * .72 | 0); return (255 << 24 | b << 16 | g << 8 | r) >>> 0; });
    // By phase and kind: products in full colour, attention deeper, other kernels pale.
    this.fills = this.state.plan.phases.map(name => {
      const base = rgb(get("phase-" + name) || "#cccccc");
      return [mix(base, [255, 255, 255], .5), mix(base, [255, 255, 255], 0), mix(base, [90, 60, 140], .22), mix(base, [255, 255, 255], 0), mix(base, [255, 255, 255], .25)];
    });
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

  // The canvas covers what is visible of the stage.
  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    this.width = width;
    this.visible = height;
    this.ratio = ratio;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.height = height + "px";
  }

  get scale() { return (this.width - LEFT) / (this.state.t1 - this.state.t0); }
  x(t) { return LEFT + (t - this.state.t0) * this.scale; }
  time(x) { return this.state.t0 + (x - LEFT) / this.scale; }

  draw(top) {
    const c = this.context;
    this.top = top;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.colour.ground;
    c.fillRect(0, 0, this.width, this.visible);
    this.addresses(); // writes pixels over whatever was there: first
    c.save();
    c.beginPath();
    c.rect(LEFT, 0, this.width - LEFT, this.visible);
    c.clip();
    c.translate(0, -top);
    this.ticks = this.makeTicks();
    this.grid();
    for (const row of this.streamRows) if (this.shows(row.y, row.h)) this.streamRow(row);
    for (const row of this.moduleRows) if (this.shows(row.y, row.h)) this.moduleRow(row);
    if (this.shows(this.memoryAt - GAP, MEMORY + GAP)) this.memory();
    this.marks();
    c.translate(0, top);
    this.ruler();
    c.restore();
  }

  shows(y, h) { return y + h > this.top && y < this.top + this.visible; }

  // ── the axis ──
  makeTicks() {
    const { t0, t1 } = this.state, least = (t1 - t0) * 100 / (this.width - LEFT);
    let step = 10 ** Math.floor(Math.log10(least));
    step *= [1, 2, 5, 10].find(f => step * f >= least);
    const ticks = [];
    for (let k = Math.ceil(t0 / step); k * step <= t1; k++) ticks.push(k * step);
    return { at: ticks, step };
  }

  tickText(t) {
    const unit = this.state.program.duration >= 1e6 ? ["s", 1e6] : this.state.program.duration >= 1e3 ? ["ms", 1e3] : ["µs", 1];
    return (t / unit[1]).toFixed(Math.max(0, Math.min(9, -Math.floor(Math.log10(this.ticks.step / unit[1] * 1.0001))))) + " " + unit[0];
  }

  grid() {
    const c = this.context, { program } = this.state;
    c.fillStyle = this.colour.band;
    for (const y of Object.values(this.sections)) c.fillRect(LEFT, y, this.width - LEFT, GAP - 3);
    c.fillStyle = this.colour.line;
    c.globalAlpha = .55;
    for (const t of this.ticks.at) c.fillRect(Math.round(this.x(t)), RULER, 1, this.addressesAt - RULER - GAP);
    c.globalAlpha = 1;
    c.fillStyle = this.colour.dim;
    for (const t of [0, program.duration]) c.fillRect(Math.round(this.x(t)), RULER, 1, this.height);
  }

  ruler() {
    const c = this.context;
    c.fillStyle = this.colour.panel;
    c.fillRect(LEFT, 0, this.width - LEFT, RULER);
    c.fillStyle = this.colour.line;
    c.fillRect(LEFT, RULER - 1, this.width - LEFT, 1);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    for (const t of this.ticks.at) {
      const x = Math.round(this.x(t));
      c.fillStyle = this.colour.dim;
      c.fillRect(x, RULER - 6, 1, 6);
      c.fillStyle = this.colour.text;
      const text = this.tickText(t);
      if (x + 8 + c.measureText(text).width < this.width) c.fillText(text, x + 4, RULER / 2);
    }
    const { cursor } = this.state;
    if (cursor === null) return;
    const x = Math.round(this.x(cursor)), text = timeText(cursor), wide = c.measureText(text).width + 8;
    const left = Math.min(x, this.width - wide);
    c.fillStyle = this.colour.cursor;
    c.fillRect(left, 2, wide, RULER - 6);
    c.fillStyle = this.colour.ground;
    c.fillText(text, left + 4, RULER / 2 - 1);
  }

  // ── streams ──
  streamRow(row) {
    this.strip(row, row.y + 2, STREAM_ROW - 4);
    if (row.stream === this.state.program.leading.stream) this.idle(row);
    if (row.h > STREAM_ROW) this.strip(row.actual, row.y + STREAM_ROW - 1, ACTUAL_ROW - 3);
  }

  // Events of { order, starts, ends } between y and y + h.
  strip(row, y, h) {
    const c = this.context, p = this.state.program, { t0, t1 } = this.state, n = row.order.length, scale = this.scale, min = t0 - LEFT / scale;
    let pixel = -1, longest = -1, length = 0;
    const flush = () => {
      if (longest < 0) return;
      c.fillStyle = this.fills[p.phase[longest]][p.kind[longest]];
      c.fillRect(pixel, y, 1, h);
      longest = -1;
      length = 0;
    };
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    for (let k = above(row.ends, t0); k < n && row.starts[k] <= t1; k++) {
      const e = row.order[k], from = Math.max((row.starts[k] - min) * scale, LEFT - 2), to = Math.min((row.ends[k] - min) * scale, this.width + 2);
      if (to - from < 1.5) { // of the events in a pixel the longest is seen
        if (pixel !== Math.floor(from)) { flush(); pixel = Math.floor(from); }
        if (longest < 0 || to - from > length) { longest = e; length = to - from; }
        continue;
      }
      flush();
      const wide = to - from > 3 ? to - from - 1 : to - from; // a line of ground between two
      c.fillStyle = this.fills[p.phase[e]][p.kind[e]];
      c.fillRect(from, y, wide, h);
      if (p.kind[e] >= COLLECTIVE) {
        c.fillStyle = this.colour.ink;
        c.globalAlpha = .5;
        c.fillRect(from, y + h - 3, wide, 3);
        c.globalAlpha = 1;
      }
      if (wide > 26) this.label(this.eventLabel(e), from, y, wide, h);
    }
    flush();
  }

  // Where the leading stream stands still until an event of another stream has ended.
  idle(row) {
    const c = this.context, p = this.state.program, { t0, t1 } = this.state;
    c.fillStyle = this.colour.budget;
    for (let k = Math.max(0, above(row.ends, t0)); k < row.order.length; k++) {
      const from = k ? row.ends[k - 1] : 0;
      if (from > t1) break;
      if (!p.events[row.order[k]][WAITS].length || row.starts[k] - from <= 0) continue;
      const wide = (row.starts[k] - from) * this.scale;
      if (wide >= .5) c.fillRect(this.x(from), row.y + STREAM_ROW / 2 - 2, Math.max(1, wide), 4);
    }
  }

  eventLabel(e) {
    const p = this.state.program, module = p.text(e, MODULE);
    return p.text(e, OP) + (module ? "  " + module : "");
  }

  label(text, x, y, wide, h) {
    const fits = Math.floor((wide - 6) / 6);
    this.context.fillStyle = this.colour.ink;
    this.context.fillText(text.length > fits ? text.slice(0, Math.max(0, fits - 1)) + "…" : text, x + 4, y + h / 2 + .5);
  }

  moduleRow(row) {
    const c = this.context, s = row.spans, { t0, t1 } = this.state, y = row.y + 1, h = row.h - 3;
    let drawn = -1;
    for (let k = above(s.ends, t0); k < s.n && s.starts[k] <= t1; k++) {
      const from = Math.max(this.x(s.starts[k]), LEFT - 2), to = Math.min(this.x(s.ends[k]), this.width + 2);
      if (to < drawn + 1 && to - from < 1) continue;
      const wide = Math.max(1, to - from - (to - from > 3 ? 1 : 0));
      drawn = from + wide;
      c.fillStyle = this.fills[s.phase[k]][row.members.length > 1 && s.member[k] % 2 ? KERNEL : MATMUL]; // neighbours differ
      c.fillRect(from, y, wide, h);
      if (wide > 14) this.label(row.members.length > 1 ? row.members[s.member[k]].name : this.state.plan.phases[s.phase[k]], from - 1, y, wide + 4, h);
    }
  }

  // ── memory ──
  // The axis ends above the peak, or above the bytes that the device has for the arena where that is not far off.
  memoryScale() {
    const { plan, program, arena } = this.state, most = Math.max(program.memory(arena).most, 1), room = arena === DEVICE ? plan.room : 0;
    const near = room > 0 && room <= 3 * most;
    const top = 1.12 * Math.max(most, near ? room : 0);
    let step = 2 ** Math.floor(Math.log2(top / 3)); // three to six lines, at round numbers of a binary unit
    const unit = 1024 ** Math.floor(Math.log2(step) / 10), nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024].find(f => f * unit * 5 >= top);
    step = nice ? nice * unit : step;
    const marks = [];
    for (let x = step; x < top * .97; x += step) marks.push(x);
    return { top, most, room, near, marks };
  }

  memory() {
    const c = this.context, { program: p, arena, plan, t0, t1 } = this.state, m = p.memory(arena), { top, room, near, marks } = this.memoryScale();
    const classes = plan.classes.length, bottom = this.memoryAt + MEMORY, tall = MEMORY / top;
    c.fillStyle = this.colour.line;
    for (const bytes of marks) c.fillRect(LEFT, Math.round(bottom - bytes * tall), this.width - LEFT, 1);
    if (!p.leading) return;
    const starts = p.leading.starts, n = starts.length, right = Math.min(this.width, this.x(p.duration));
    let x = Math.max(LEFT, Math.floor(this.x(0))), k = p.momentAt(Math.max(0, t0));
    while (x < right) { // a run of pixels with one live set at a time; of several in a pixel the largest
      const next = this.time(x + 1);
      let shown = m.at[k];
      while (k + 1 < n && starts[k + 1] < next) { k++; if (m.total[m.at[k]] > m.total[shown]) shown = m.at[k]; }
      let until = x + 1;
      if (shown === m.at[k]) until = Math.min(right, Math.max(until, k + 1 < n ? Math.floor(this.x(starts[k + 1])) : right));
      let sum = 0, y = bottom;
      for (let i = 0; i < classes; i++) {
        const bytes = m.of[shown * classes + i];
        if (!bytes) continue;
        sum += bytes;
        const to = Math.round(bottom - sum * tall);
        if (to < y) { c.fillStyle = this.classes[i]; c.fillRect(x, to, until - x, y - to); }
        y = to;
      }
      x = until;
    }
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "bottom";
    if (room > 0) {
      const y = near ? Math.round(bottom - room * tall) : this.memoryAt + 1;
      c.strokeStyle = this.colour.budget;
      c.lineWidth = 1.5;
      c.setLineDash(near ? [] : [3, 5]);
      c.beginPath(); c.moveTo(LEFT, y); c.lineTo(this.width, y); c.stroke();
      c.setLineDash([]);
      const text = (near ? "" : "↑ ") + bytesText(plan.usable_bytes) + " usable on " + plan.device + (plan.library_bytes ? ", less " + bytesText(plan.library_bytes) + " of libraries" : "");
      c.fillStyle = this.colour.budget;
      c.textBaseline = near && y - this.memoryAt > 14 ? "bottom" : "top";
      c.fillText(text, this.width - c.measureText(text).width - 6, c.textBaseline === "top" ? y + 3 : y - 1);
    }
    this.peakMark(bottom, tall);
  }

  peakMark(bottom, tall) {
    const c = this.context, { program: p, arena } = this.state, m = p.memory(arena);
    const e = arena === DEVICE ? p.peak_event : -1;
    if (e < 0 || e >= p.n) return;
    const x = this.x(this.timeOf(e)), y = bottom - m.total[e] * tall;
    if (x < LEFT - 5 || x > this.width + 5) return;
    c.fillStyle = this.colour.text;
    c.beginPath(); c.moveTo(x, y); c.lineTo(x - 5, y - 8); c.lineTo(x + 5, y - 8); c.fill();
    c.textBaseline = "bottom";
    const text = "peak " + bytesText(m.total[e]) + " at " + p.id(e), wide = c.measureText(text).width, left = x + 8 + wide > this.width ? x - 8 - wide : x + 8;
    c.fillText(text, left, y - 1);
  }

  // Where on the axis the live set of event e stands: in the middle of its run of time.
  timeOf(e) {
    const p = this.state.program, lead = p.leading.order;
    let lo = 0, hi = lead.length - 1; // the first event of the leading stream that is not issued before e
    while (lo < hi) { const mid = (lo + hi) >> 1; if (lead[mid] >= e) hi = mid; else lo = mid + 1; }
    return (p.start[lead[lo]] + (lo + 1 < lead.length ? p.start[lead[lo + 1]] : p.duration)) / 2;
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

  // ── selection, waits and the cursor, over everything ──
  marks() {
    const c = this.context, { program: p, selection, hover, cursor } = this.state;
    if (hover && hover.storage !== undefined) this.outlineStorage(hover.storage, this.colour.text, 1);
    if (selection && selection.storage !== undefined) this.outlineStorage(selection.storage, this.colour.select, 2.5);
    if (selection && selection.event !== undefined) {
      const e = selection.event;
      for (const column of [READS, WRITES]) for (let i = 0; i < p.events[e][column].length; i += 3) this.outlineStorage(p.events[e][column][i], this.colour.select, column === WRITES ? 2 : 1);
      const [x0, x1, y] = this.box(e);
      c.strokeStyle = this.colour.select;
      c.lineWidth = 2;
      c.strokeRect(x0 - 1, y + 1, Math.max(3, x1 - x0) + 1, STREAM_ROW - 2);
      if (this.state.actual && p.actual) c.strokeRect(this.x(p.actual.start[e]) - 1, y + STREAM_ROW - 1, Math.max(3, this.x(p.actual.end[e]) - this.x(p.actual.start[e])) + 1, ACTUAL_ROW - 3);
      c.lineWidth = 1.5;
      for (const [awaited] of p.events[e][WAITS]) this.arrow(awaited, e, true);
      for (const x of p.waiting(e)) this.arrow(e, x, false);
    }
    if (hover && hover.event !== undefined) {
      const [x0, x1, y] = this.box(hover.event);
      c.strokeStyle = this.colour.text;
      c.lineWidth = 1;
      c.strokeRect(x0 - .5, y + 1.5, Math.max(2, x1 - x0), STREAM_ROW - 3);
    }
    if (cursor !== null) {
      c.fillStyle = this.colour.cursor;
      c.globalAlpha = .6;
      c.fillRect(Math.round(this.x(cursor)), this.top, 1, this.visible);
      c.globalAlpha = 1;
    }
    if (this.state.range) {
      const [a, b] = this.state.range;
      c.fillStyle = this.colour.select;
      c.globalAlpha = .2;
      c.fillRect(Math.min(a, b), this.top, Math.abs(b - a), this.visible);
      c.globalAlpha = 1;
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

  // From the end of an event to the start of one that waits for it; those that the selection waits for are whole lines.
  arrow(from, to, whole) {
    const c = this.context, clamp = x => Math.max(-2000, Math.min(this.width + 2000, x)), a = this.box(from), b = this.box(to);
    const x0 = clamp(a[1]), x1 = clamp(b[0]), y0 = a[2] + STREAM_ROW / 2, y1 = b[2] + STREAM_ROW / 2, bend = Math.max(14, Math.abs(x1 - x0) / 3);
    c.strokeStyle = c.fillStyle = whole ? this.colour.arrow : this.colour.dim;
    c.setLineDash(whole ? [] : [4, 3]);
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
        const e = this.nearest(y < row.y + STREAM_ROW ? row : row.actual, t, 3 / this.scale);
        return e < 0 ? { stream: row.stream } : { event: e, stream: row.stream };
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

  // The event of a stream at a time, or within reach of it; -1: none.
  nearest(row, t, reach) {
    const k = above(row.ends, t), near = [k - 1, k].filter(i => i >= 0 && i < row.order.length);
    const off = i => Math.max(row.starts[i] - t, t - row.ends[i], 0);
    const best = near.sort((a, b) => off(a) - off(b))[0];
    return best !== undefined && off(best) <= reach ? row.order[best] : -1;
  }
}

function rgb(colour) {
  return [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
}
function mix(a, b, share) {
  return "#" + a.map((x, i) => Math.round(x + (b[i] - x) * share).toString(16).padStart(2, "0")).join("");
}
