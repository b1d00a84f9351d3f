// ── chart.js: the curves of one figure on a canvas. Draws a view of the runs; says what lies at a place. ──────────────────────
// All charts share the view [state.x0, state.x1] on the axis state.axis; y fits what is in view.

const LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 22;
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]]; // runs of one colour differ in these

class Chart {
  constructor(canvas, figure, state) {
    Object.assign(this, { canvas, figure, state, context: canvas.getContext("2d", { alpha: false }) });
    this.curves = new Map(); // run to its smoothed values, made anew when the slider moves
  }

  resize() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    this.ratio = ratio;
    this.width = Math.max(120, box.width);
    this.height = Math.max(80, box.height);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
  }

  // The run that others are compared with in this chart; null: none, or it has no such figure.
  get other() { const run = this.state.data.runs[this.state.against]; return run && columnOf(run, this.figure) ? run : null; }

  // Of a run: { x, y, raw, low, high, value } arrays; value: as the log has it, which raw is less than what another run has. null where it has
  // no such figure.
  curve(run) {
    const column = columnOf(run, this.figure);
    if (!column) return null;
    const by = this.state.smooth, x = xOf(run, this.figure, this.state.axis), other = this.other, had = this.curves.get(run);
    if (had && had.by === by && had.x === x && had.other === other) return had;
    const made = { by, x, other, value: column.at, raw: column.at, low: column.low, high: column.high, y: smoothed(column.at, by) };
    if (other) {
      const of = columnOf(other, this.figure).at, ofX = xOf(other, this.figure, this.state.axis), plain = made.y === made.raw;
      made.raw = minus(x, column.at, ofX, of);
      made.y = plain ? made.raw : minus(x, made.y, ofX, smoothed(of, by));
      made.low = made.high = undefined; // the range of a difference is not known
    }
    this.curves.set(run, made);
    return made;
  }

  get log() { return this.state.log && this.positive && !this.other; }
  x(v) { return LEFT + (v - this.state.x0) / (this.state.x1 - this.state.x0) * (this.width - LEFT - RIGHT); }
  at(px) { return this.state.x0 + (px - LEFT) / (this.width - LEFT - RIGHT) * (this.state.x1 - this.state.x0); }
  y(v) {
    const f = this.log ? Math.log10 : x => x;
    return this.height - BOTTOM - (f(v) - f(this.y0)) / (f(this.y1) - f(this.y0)) * (this.height - TOP - BOTTOM);
  }

  runs() { return this.state.data.runs.filter(r => r.shown && columnOf(r, this.figure)); }
  predicted(run) { return !this.other && this.figure.key === "seconds" && this.figure.table === "steps" ? run.starts.filter(s => s.predicted_s > 0) : []; }

  // The range of y over what is in view, without outliers where these are clipped.
  fit() {
    let low = Infinity, high = -Infinity, least = Infinity;
    const drawn = [], take = v => { if (v < low) low = v; if (v > high) high = v; if (v > 0 && v < least) least = v; };
    for (const run of this.runs()) {
      const c = this.curve(run), n = c.x.length;
      let from = nearest(c.x, this.state.x0), to = nearest(c.x, this.state.x1);
      if (from > 0) from--;
      for (let k = Math.max(0, from); k <= to && k < n; k++) {
        if (c.y[k] === null) continue;
        take(c.y[k]);
        drawn.push(c.y[k]);
        if (c.y === c.raw && c.low) { take(c.low[k]); take(c.high[k]); }
        else if (c.y !== c.raw) take(c.raw[k]);
      }
      for (const s of this.predicted(run)) take(s.predicted_s);
    }
    this.empty = low > high;
    if (this.empty) { low = 0; high = 1; }
    this.positive = least < Infinity && low >= 0;
    this.clip(drawn, low, high);
    low = Math.max(low, this.lower);
    high = Math.min(high, this.upper);
    least = Math.max(least, this.lower);
    const flat = high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high)); // what rounding leaves of a smoothed constant is no range
    if (this.log) {
      low = least;
      this.y0 = flat ? low / 1.1 : low / (high / low) ** .05;
      this.y1 = flat ? high * 1.1 : high * (high / low) ** .05;
    } else {
      const room = !flat ? (high - low) * .06 : Math.abs(high) * .1 || 1;
      this.y0 = low - room;
      this.y1 = high + room;
    }
  }

  // What of the drawn values lies outside the axis: how many, and the furthest.
  clip(drawn, low, high) {
    const scale = this.log ? [Math.log10, x => 10 ** x] : [x => x, x => x], values = this.log ? drawn.filter(v => v > 0) : drawn;
    [this.lower, this.upper] = this.state.clip && !this.empty ? limitsOf(values.map(scale[0])).map(scale[1]) : [-Infinity, Infinity];
    if (!this.log && low >= 0 && this.lower < 0) this.lower = -Infinity; // as it is: nothing lies there
    this.above = values.filter(v => v > this.upper).length;
    this.below = values.filter(v => v < this.lower).length;
    if (!this.above) this.upper = Infinity; // of a step range or what was smoothed away: nothing that is drawn is lost
    if (!this.below) this.lower = -Infinity;
    this.outside = [this.above && grouped(this.above) + " above, up to " + valueText(this.figure, values.reduce((a, b) => Math.max(a, b))), this.below && grouped(this.below) + " below, down to " + valueText(this.figure, values.reduce((a, b) => Math.min(a, b)))]
      .filter(Boolean).join("; ");
  }

  // A mark at the edge for each curve that leaves the axis, and what lies out there.
  clipped() {
    const c = this.context, { colour } = this.state;
    if (!this.outside) return;
    for (const run of this.runs()) {
      const curve = this.curve(run);
      let last = -Infinity;
      c.fillStyle = colour.runs[run.index % 8];
      for (let k = Math.max(0, nearest(curve.x, this.state.x0)); k < curve.x.length && curve.x[k] <= this.state.x1; k++) {
        const v = curve.y[k], x = this.x(curve.x[k]), up = v > this.upper;
        if (v === null || !(up || v < this.lower) || x - last < 8) continue;
        const tip = up ? TOP - 4 : this.height - BOTTOM, foot = up ? tip + 7 : tip - 7;
        c.beginPath(); c.moveTo(x, tip); c.lineTo(x - 4, foot); c.lineTo(x + 4, foot); c.fill();
        last = x;
      }
    }
    c.textAlign = "end";
    c.textBaseline = "top";
    const wide = c.measureText("clipped: " + this.outside).width;
    c.globalAlpha = .8;
    c.fillStyle = colour.ground;
    c.fillRect(this.width - RIGHT - wide - 6, TOP + 4, wide + 4, 15);
    c.globalAlpha = 1;
    c.fillStyle = colour.text;
    c.fillText("clipped: " + this.outside, this.width - RIGHT - 4, TOP + 6);
  }

  ticksY() {
    if (this.log && this.y1 / this.y0 > 30) {
      const ticks = [], every = Math.ceil(Math.log10(this.y1 / this.y0) / 5);
      for (let e = Math.ceil(Math.log10(this.y0)); e <= Math.log10(this.y1); e += every) ticks.push(10 ** e);
      return ticks;
    }
    return ticksOf(this.y0, this.y1, 4);
  }

  draw() {
    const c = this.context, { colour } = this.state;
    this.fit();
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = colour.ground;
    c.fillRect(0, 0, this.width + 1, this.height + 1); // both may be fractions
    c.font = "11px system-ui, sans-serif";
    c.lineWidth = 1;
    c.textAlign = "end";
    c.textBaseline = "middle";
    for (const v of this.ticksY()) {
      const y = Math.round(this.y(v)) + .5;
      if (y < TOP || y > this.height - BOTTOM) continue;
      c.fillStyle = colour.line;
      c.fillRect(LEFT, y - .5, this.width - LEFT - RIGHT, 1);
      c.fillStyle = colour.dim;
      c.fillText(tickText(this.figure, v), LEFT - 5, y);
    }
    c.textAlign = "center";
    c.textBaseline = "top";
    const { axis, x0, x1 } = this.state;
    const [one, unit] = axis !== "time" ? [1, ""] : x1 >= 7200 ? [3600, " h"] : x1 >= 120 ? [60, " min"] : [1, " s"];
    for (const v of ticksOf(x0 / one, x1 / one, Math.max(2, Math.floor((this.width - LEFT) / 90)))) {
      const x = this.x(v * one), text = short(v) + unit, wide = c.measureText(text).width / 2;
      c.fillStyle = colour.dim;
      c.fillRect(Math.round(x), this.height - BOTTOM, 1, 4);
      if (x + wide < this.width && x - wide > LEFT - 20) c.fillText(text, x, this.height - BOTTOM + 6);
    }
    c.fillStyle = colour.line;
    c.fillRect(LEFT, this.height - BOTTOM, this.width - LEFT - RIGHT, 1);
    c.save();
    c.beginPath();
    c.rect(LEFT, TOP - 4, this.width - LEFT - RIGHT, this.height - BOTTOM - TOP + 5);
    c.clip();
    for (const run of this.runs()) this.run(run);
    this.marks();
    this.clipped();
    c.restore();
    if (this.empty) {
      c.fillStyle = colour.dim;
      c.textBaseline = "middle";
      c.fillText("nothing here", (LEFT + this.width) / 2, this.height / 2);
    }
  }

  run(run) {
    const c = this.context, curve = this.curve(run), { x0, x1 } = this.state;
    c.strokeStyle = this.state.colour.runs[run.index % 8];
    c.fillStyle = c.strokeStyle;
    c.lineWidth = 1;
    for (const s of this.predicted(run)) {
      c.setLineDash([5, 4]);
      c.beginPath();
      const next = run.starts[run.starts.indexOf(s) + 1], y = this.y(s.predicted_s);
      c.moveTo(this.x(restartAt(run, s, this.state.axis)), y);
      c.lineTo(next ? this.x(restartAt(run, next, this.state.axis)) : this.width, y);
      c.stroke();
      c.setLineDash([]);
    }
    for (const start of run.restarts) {
      const x = Math.round(this.x(restartAt(run, start, this.state.axis))) + .5;
      c.setLineDash([1, 3]);
      c.beginPath(); c.moveTo(x, 0); c.lineTo(x, this.height); c.stroke();
      c.setLineDash([]);
    }
    const n = curve.x.length;
    let from = Math.max(0, nearest(curve.x, x0) - 1), to = Math.min(n - 1, nearest(curve.x, x1) + 1);
    if (curve.low && curve.y === curve.raw) { // the range of the steps in a point
      c.globalAlpha = .25;
      let pixel = -1, top = 0, bottom = 0, next = 0;
      const flush = () => { if (pixel >= 0) c.fillRect(pixel, top, Math.max(1, next - pixel), Math.max(1, bottom - top)); pixel = -1; };
      for (let k = from; k <= to; k++) {
        if (curve.low[k] === null || this.log && curve.low[k] <= 0) { flush(); continue; }
        const px = Math.floor(this.x(curve.x[k])), high = this.y(curve.high[k]), low = this.y(curve.low[k]);
        if (px !== pixel) { next = px; flush(); pixel = px; top = high; bottom = low; }
        top = Math.min(top, high);
        bottom = Math.max(bottom, low);
        next = px + 1;
      }
      flush();
      c.globalAlpha = 1;
    }
    if (curve.y !== curve.raw) { // what was smoothed
      c.globalAlpha = .28;
      this.line(curve.x, curve.raw, from, to);
      c.globalAlpha = 1;
    }
    c.lineWidth = 1.6;
    c.setLineDash(DASHES[(run.index >> 3) % DASHES.length]);
    this.line(curve.x, curve.y, from, to);
    c.setLineDash([]);
    if (to - from < 40) for (let k = from; k <= to; k++) { // single points, which a line of one or two would hide
      if (curve.y[k] === null || this.log && curve.y[k] <= 0) continue;
      c.beginPath(); c.arc(this.x(curve.x[k]), this.y(curve.y[k]), 2.2, 0, 7); c.fill();
    }
  }

  // Of the points in one column of pixels: the first, the lowest, the highest and the last.
  line(x, y, from, to) {
    const c = this.context;
    let pen = false, pixel = null, low = 0, high = 0, last = 0;
    const flush = () => { if (pixel !== null && low !== high) { c.lineTo(pixel, low); c.lineTo(pixel, high); c.lineTo(pixel, last); } pixel = null; };
    c.beginPath();
    for (let k = from; k <= to; k++) {
      const v = y[k];
      if (v === null || this.log && v <= 0) { flush(); pen = false; continue; }
      const px = this.x(x[k]), py = this.y(v);
      if (pen && pixel !== null && px - pixel < .5) { low = Math.min(low, py); high = Math.max(high, py); last = py; continue; }
      flush();
      pen ? c.lineTo(px, py) : c.moveTo(px, py);
      pen = true;
      pixel = px;
      low = high = last = py;
    }
    flush();
    c.stroke();
  }

  marks() {
    const c = this.context, { cursor, range, colour } = this.state;
    if (cursor !== null) {
      c.fillStyle = colour.cursor;
      c.globalAlpha = .6;
      c.fillRect(Math.round(this.x(cursor)), 0, 1, this.height);
      c.globalAlpha = 1;
      for (const run of this.runs()) {
        const at = this.value(run, cursor);
        if (!at || at.shown === null || this.log && at.shown <= 0) continue;
        c.fillStyle = colour.runs[run.index % 8];
        c.beginPath(); c.arc(this.x(at.x), this.y(at.shown), 3.5, 0, 7); c.fill();
      }
    }
    if (!range) return;
    c.fillStyle = colour.runs[0];
    c.globalAlpha = .2;
    c.fillRect(this.x(Math.min(...range)), 0, Math.abs(this.x(range[1]) - this.x(range[0])), this.height);
    c.globalAlpha = 1;
  }

  // What a run has nearest to x: its row, the value of the log, and the value as drawn.
  value(run, x) {
    const curve = this.curve(run);
    if (!curve) return null;
    const k = nearest(curve.x, x);
    if (k < 0) return null;
    const steps = run[this.figure.table].x.step;
    return { row: k, x: curve.x[k], value: curve.value[k], raw: curve.raw[k], shown: curve.y[k], low: curve.low ? curve.low[k] : curve.value[k], high: curve.high ? curve.high[k] : curve.value[k],
      first: steps.low ? steps.low[k] : steps.at[k], last: steps.high ? steps.high[k] : steps.at[k] };
  }

  // The chart in a sentence, for who cannot see it.
  sentence() {
    return this.figure.title + ": " + (this.runs().map(run => {
      const c = columnOf(run, this.figure), t = x => valueText(this.figure, x);
      return !c.n ? run.label + " has none" : run.label + " from " + t(c.first) + " to " + t(c.last) + ", lowest " + t(c.least) + " at step " + c.least_step + ", highest " + t(c.most) + " at step " + c.most_step;
    }).join("; ") || "no run is shown");
  }
}

function ticksOf(from, to, count) {
  const step = tickStep((to - from) / count), ticks = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}
function short(x) {
  const size = Math.abs(x);
  for (const [one, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) if (size >= one) return Number((x / (one === 1e4 ? 1e3 : one)).toPrecision(5)) + name;
  return x && size < 1e-3 ? x.toExponential(2).replace(/\.?0+e/, "e") : String(Number(x.toPrecision(5)));
}
function tickText(figure, x) { return figure.unit === "s" ? x >= 1 || !x ? short(x) + " s" : x >= .9995e-3 ? short(x * 1e3) + " ms" : short(x * 1e6) + " us" : short(x); }
