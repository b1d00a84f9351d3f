// ── axis.js: a canvas with a time axis: what all timelines share. Changes nothing but its canvas. ───────────────────────────
// x = left + (t - t0) * scale for every section. What is narrower than a pixel is drawn by what it covers: a pixel of a row is filled as far up
// as it is covered, by the colour that covers most of it, but never so little that nothing is seen.

const LEFT = 150, RULER = 24, GAP = 22, MEMORY = 170;

class Axis {
  // state: t0 and t1, the range that is seen; cursor, a time or null; range, pixels of a drag or null.
  // extent(): what the axis is of, in microseconds. plan: whose phases and classes have colours.
  constructor(canvas, state, plan, extent) {
    Object.assign(this, { canvas, state, plan, extent });
    this.context = canvas.getContext("2d", { alpha: false });
    this.readColours();
  }

  readColours() {
    const get = this.property = colours();
    this.colour = Object.fromEntries(["ground", "panel", "text", "dim", "line", "ink", "cursor", "budget", "select", "arrow", "band"].map(n => [n, get(n)]));
    this.classes = this.plan.classes.map((_, i) => get("class-" + i));
    // By phase and kind: products in full colour, attention deeper, other kernels pale.
    this.fills = this.plan.phases.map(name => {
      const base = rgb(get("phase-" + name) || "#cccccc");
      return [mix(base, [255, 255, 255], .5), mix(base, [255, 255, 255], 0), mix(base, [90, 60, 140], .22), mix(base, [255, 255, 255], 0), mix(base, [255, 255, 255], .25)];
    });
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

  // Whoever extends this draws drawSections() in coordinates of the stage, whose first visible row is top; drawPixels() in those of the canvas.
  draw(top) {
    const c = this.context;
    this.top = top;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.colour.ground;
    c.fillRect(0, 0, this.width, this.visible);
    this.drawPixels(); // writes pixels over whatever was there: first
    c.save();
    c.beginPath();
    c.rect(LEFT, 0, this.width - LEFT, this.visible);
    c.clip();
    c.translate(0, -top);
    this.ticks = this.makeTicks();
    this.drawSections();
    this.drawCursor();
    c.translate(0, top);
    this.ruler();
    c.restore();
  }
  drawPixels() {}

  shows(y, h) { return y + h > this.top && y < this.top + this.visible; }

  // ── the axis: there is no time before 0 ──
  makeTicks() {
    const { t0, t1 } = this.state, step = tickStep((t1 - t0) * 100 / (this.width - LEFT)), ticks = [];
    for (let k = Math.ceil(Math.max(t0, 0) / step); k * step <= t1; k++) ticks.push(k * step);
    return { at: ticks, step };
  }

  tickText(t) {
    const last = Math.min(this.state.t1, this.extent()), unit = last >= 1e6 ? ["s", 1e6] : last >= 1e3 ? ["ms", 1e3] : ["us", 1]; // of the latest time that is seen
    return (t / unit[1]).toFixed(Math.max(0, Math.min(11, -Math.floor(Math.log10(this.ticks.step / unit[1] * 1.0001))))) + " " + unit[0];
  }

  // Bands of the titles, lines of the ticks down to a height, and a line where each of some times is.
  gridOf(sections, bottom, times) {
    const c = this.context;
    c.fillStyle = this.colour.band;
    for (const y of sections) c.fillRect(LEFT, y, this.width - LEFT, GAP - 3);
    c.fillStyle = this.colour.line;
    c.globalAlpha = .55;
    for (const t of this.ticks.at) c.fillRect(Math.round(this.x(t)), RULER, 1, bottom - RULER);
    c.globalAlpha = 1;
    c.fillStyle = this.colour.dim;
    for (const t of times) c.fillRect(Math.round(this.x(t)), RULER, 1, this.height);
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

  drawCursor() {
    const c = this.context, { cursor, range } = this.state;
    if (cursor !== null) {
      c.fillStyle = this.colour.cursor;
      c.globalAlpha = .6;
      c.fillRect(Math.round(this.x(cursor)), this.top, 1, this.visible);
      c.globalAlpha = 1;
    }
    if (range) {
      const [a, b] = range;
      c.fillStyle = this.colour.select;
      c.globalAlpha = .2;
      c.fillRect(Math.min(a, b), this.top, Math.abs(b - a), this.visible);
      c.globalAlpha = 1;
    }
  }

  // What is narrower than a pixel, of a row between y and y + h: add(from, to, key) in ascending order, in pixels, passed(from, to) of what
  // is wider, which the caller draws, then flush(). A pixel has the colour of the key with most weight. least: pixels of the height that are filled
  // for however little; low(key): how many lower it ends.
  narrow(y, h, least, { fill, weight, low = () => 0 }) {
    const c = this.context;
    let pixel = -1, covered = 0, key = -1, most = 0;
    const flush = () => {
      const full = most > 0 ? h - low(key) : 0, high = Math.min(full, Math.max(least, Math.round(covered * full)));
      if (high > 0) { c.fillStyle = fill(key); c.fillRect(pixel, y + h - high, 1, high); }
      covered = most = 0;
    };
    const add = (from, to, k) => {
      for (let x = Math.floor(from); x < to || x === from; x++) {
        if (x !== pixel) { flush(); pixel = x; }
        const part = Math.max(Math.min(x + 1, to) - Math.max(x, from), 1e-9), w = weight ? weight(k, part) : part;
        covered += part;
        if (w > most) { most = w; key = k; }
      }
    };
    const passed = (from, to) => { // it covers the rest of the pixel that it begins in, and a part of the one that it ends in
      if (Math.floor(from) === pixel) covered += Math.floor(from) + 1 - from;
      flush();
      pixel = Math.floor(to);
      covered = to - pixel;
    };
    return { add, passed, flush };
  }

  // Events of { order, starts, ends } between y and y + h. look: fill(e), a colour; low(e), how many pixels lower it begins; weight(e, length),
  // of the events in a pixel the one with most is seen; underlined(e); text(e).
  strip(row, y, h, look) {
    const c = this.context, { t0, t1 } = this.state, n = row.order.length, scale = this.scale, min = t0 - LEFT / scale;
    const { add, passed, flush } = this.narrow(y, h, 2, look);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    for (let k = above(row.ends, t0); k < n && row.starts[k] <= t1; k++) {
      const e = row.order[k], from = Math.max((row.starts[k] - min) * scale, LEFT - 2), to = Math.min((row.ends[k] - min) * scale, this.width + 2);
      if (to - from < 1.5) {
        add(from, to, e);
        continue;
      }
      passed(from, to);
      const wide = to - from > 3 ? to - from - 1 : to - from, low = look.low ? look.low(e) : 0; // a line of ground between two
      c.fillStyle = look.fill(e);
      c.fillRect(from, y + low, wide, h - low);
      if (look.underlined(e)) {
        c.fillStyle = this.colour.ink;
        c.globalAlpha = .5;
        c.fillRect(from, y + h - 3, wide, 3);
        c.globalAlpha = 1;
      }
      if (wide > 26) this.label(look.text(e), from, y + low, wide, h - low);
    }
    flush();
  }

  // Where a stream stands still until an event of another stream has ended; y: the middle of its row.
  idle(p, row, y) {
    const c = this.context, { t0, t1 } = this.state, { add, passed, flush } = this.narrow(y - 2, 4, 0, { fill: () => this.colour.budget });
    for (let k = Math.max(0, above(row.ends, t0)); k < row.order.length; k++) {
      const from = k ? row.ends[k - 1] : 0;
      if (from > t1) break;
      if (!p.held[row.order[k]] || row.starts[k] - from <= 0) continue;
      const wide = (row.starts[k] - from) * this.scale;
      if (wide < 1.5) { add(this.x(from), this.x(from) + wide, 0); continue; }
      passed(this.x(from), this.x(from) + wide);
      c.fillStyle = this.colour.budget;
      c.fillRect(this.x(from), y - 2, wide, 4);
    }
    flush();
  }

  // The event of a row whose red line lies at a time; -1: there is none.
  held(p, row, t) {
    const k = above(row.ends, t), e = k < row.order.length ? row.order[k] : -1;
    return row.stream === p.leading.stream && t >= 0 && e >= 0 && row.starts[k] > t && p.held[e] ? e : -1;
  }

  label(text, x, y, wide, h) {
    const fits = Math.floor((wide - 6) / 6);
    this.context.fillStyle = this.colour.ink;
    this.context.fillText(text.length > fits ? text.slice(0, Math.max(0, fits - 1)) + "…" : text, x + 4, y + h / 2 + .5);
  }

  // Spans { starts, ends, n } between y and y + h.
  spans(s, y, h, fill, text) {
    const c = this.context, { t0, t1 } = this.state, { add, passed, flush } = this.narrow(y, h, 2, { fill });
    for (let k = above(s.ends, t0); k < s.n && s.starts[k] <= t1; k++) {
      const from = Math.max(this.x(s.starts[k]), LEFT - 2), to = Math.min(this.x(s.ends[k]), this.width + 2);
      if (to - from < 1.5) { add(from, to, k); continue; }
      passed(from, to);
      const wide = to - from - (to - from > 3 ? 1 : 0);
      c.fillStyle = fill(k);
      c.fillRect(from, y, wide, h);
      if (wide > 14) this.label(text(k), from - 1, y, wide + 4, h);
    }
    flush();
  }

  // ── memory ──
  // The axis ends above the most bytes, or above the room that the device has for the arena where that is at most so many times as much.
  bytesScale(most, room, times) {
    const near = room > 0 && room <= times * most;
    const top = 1.15 * Math.max(most, near ? room : 0);
    let step = 2 ** Math.floor(Math.log2(top / 3)); // three to six lines, at round numbers of a binary unit
    const unit = 1024 ** Math.floor(Math.log2(step) / 10), nice = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024].find(f => f * unit * 5 >= top);
    step = nice ? nice * unit : step;
    const marks = [];
    for (let x = step; x < top * .97; x += step) marks.push(x);
    return { top, most, room, near, marks };
  }

  bytesLines(marks, bottom, tall) {
    this.context.fillStyle = this.colour.line;
    for (const bytes of marks) this.context.fillRect(LEFT, Math.round(bottom - bytes * tall), this.width - LEFT, 1);
  }

  // Calls each(x, until, e) for runs of pixels in which a program has one live set, that of event e; of several in a pixel the largest: what a curve
  // of memory is asked for is its peaks.
  moments(p, arena, each) {
    if (!p.leading) return;
    const m = p.memory(arena), starts = p.leading.starts, n = starts.length, right = Math.min(this.width, this.x(p.duration));
    let x = Math.max(LEFT, Math.floor(this.x(0))), k = p.momentAt(Math.max(0, this.state.t0));
    while (x < right) {
      const next = this.time(x + 1);
      let shown = m.at[k];
      while (k + 1 < n && starts[k + 1] < next) { k++; if (m.total[m.at[k]] > m.total[shown]) shown = m.at[k]; }
      let until = x + 1;
      if (shown === m.at[k]) until = Math.min(right, Math.max(until, k + 1 < n ? Math.floor(this.x(starts[k + 1])) : right));
      each(x, until, shown);
      x = until;
    }
  }

  // What the device has for the arena: a line, or an arrow where it is far above. titled: the text stands in the band of the title.
  roomLine(plan, { room, near }, bottom, tall, titled) {
    this.roomLeft = Infinity;
    this.peakText = null; // where the text of the last peak's mark stands
    if (room <= 0) return;
    const c = this.context, y = near ? Math.round(bottom - room * tall) : bottom - MEMORY + 1;
    c.strokeStyle = this.colour.budget;
    c.lineWidth = 1.5;
    c.setLineDash(near ? [] : [3, 5]);
    c.beginPath(); c.moveTo(LEFT, y); c.lineTo(this.width, y); c.stroke();
    c.setLineDash([]);
    const text = (near ? "" : "↑ ") + bytesText(plan.usable_bytes) + " usable on " + plan.device + (plan.library_bytes ? ", less " + bytesText(plan.library_bytes) + " of libraries" : "");
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = this.colour.budget;
    c.textBaseline = titled || (near && y - (bottom - MEMORY) > 14) ? "bottom" : "top";
    this.roomLeft = this.width - c.measureText(text).width - 6;
    this.roomY = titled ? bottom - MEMORY - 5 : c.textBaseline === "top" ? y + 3 : y - 13; // the top of the text
    c.fillText(text, this.roomLeft, titled ? bottom - MEMORY - 5 : c.textBaseline === "top" ? y + 3 : y - 1);
  }

  // A mark upon the curve where event e of a program is alive. Its text stands to the right where there is room, or to the left where that
  // is wanted and there is room.
  peakMark(p, arena, e, said, bottom, tall, left) {
    if (e < 0 || e >= p.n) return;
    const c = this.context, bytes = p.memory(arena).total[e], x = this.x(this.timeOf(p, e)), y = bottom - bytes * tall;
    if (x < LEFT - 5 || x > this.width + 5) return;
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = this.colour.text;
    c.beginPath(); c.moveTo(x, y); c.lineTo(x - 5, y - 8); c.lineTo(x + 5, y - 8); c.fill();
    c.textBaseline = "bottom";
    const text = said + " " + bytesText(bytes) + " at " + p.id(e), wide = c.measureText(text).width, at = (left && x - 8 - wide > LEFT) || x + 8 + wide > this.width ? x - 8 - wide : x + 8;
    const upon = at + wide > this.roomLeft - 6 && y - 14 < this.roomY + 13 && y > this.roomY; // the text of what the device has: below it
    const foot = upon ? this.roomY + 28 : y - 1;
    c.strokeStyle = this.colour.ground; // around the letters, where they stand upon a curve
    c.lineWidth = 3;
    c.lineJoin = "round";
    c.strokeText(text, at, foot);
    c.fillText(text, at, foot);
    this.peakText = [at, foot - 13, at + wide, foot];
  }

  // Where on the axis the live set of event e stands: in the middle of its run of time.
  timeOf(p, e) {
    const lead = p.leading.order;
    let lo = 0, hi = lead.length - 1; // the first event of the leading stream that is not issued before e
    while (lo < hi) { const mid = (lo + hi) >> 1; if (lead[mid] >= e) hi = mid; else lo = mid + 1; }
    return (p.start[lead[lo]] + (lo + 1 < lead.length ? p.start[lead[lo + 1]] : p.duration)) / 2;
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
