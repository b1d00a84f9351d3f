// ── data.js: the logs as the page has them, and what it asks of them. Knows neither the document nor the canvas. ─────────────
// A table has a row for each line of the log, or, where there were too many, for `width` lines: means, lowest and highest values.

function readRuns(text) {
  const d = JSON.parse(text);
  d.runs.forEach((run, index) => {
    run.index = index;
    run.shown = true;
    for (const table of [run.steps, run.validations]) {
      table.x = Object.fromEntries(table.x.map(c => [c.name, c]));
      table.column = new Map(table.columns.map(c => [c.name, c]));
    }
    run.restarts = run.starts.filter(s => s.restart);
    run.last = run.starts.length ? run.starts[run.starts.length - 1] : null;
  });
  const short = d.runs.map(r => r.name.split("/").pop()); // names without their folders, where that tells them apart
  d.runs.forEach((r, i) => { r.label = short.filter(s => s === short[i]).length > 1 ? r.name : short[i]; });
  d.models = [...new Set(d.runs.filter(r => r.last).map(r => r.last.model))];
  d.figures = figures(d.runs);
  return d;
}

// What every program logs and has a curve, in this order; what the model logs stands behind the first MODEL_AT of them.
const MODEL_AT = 4;
const KNOWN = [["steps", "loss", "loss"], ["validations", "val_loss", "validation loss"], ["steps", "grad_norm", "gradient norm"], ["steps", "lr", "learning rate"],
  ["steps", "tok_s", "tok/s"], ["steps", "samples_s", "samples/s"], ["steps", "seconds", "time of a step"],
  ["steps", "tokens", "tokens seen"], ["steps", "samples", "samples seen"], ["steps", "scale", "loss scale"], ["steps", "skipped", "skipped by the loss scaler"],
  ["validations", "seconds", "time of a validation"], ["validations", "val_targets", "targets of a validation"]];

function figures(runs) {
  const known = KNOWN.map(([table, key, title]) => ({ table, key, title, metric: false }));
  const keys = new Set(runs.flatMap(r => r.steps.columns.map(c => c.name)));
  known.filter(f => f.table === "steps").forEach(f => keys.delete(f.key));
  const all = [...known.slice(0, MODEL_AT), ...[...keys].map(key => ({ table: "steps", key, title: key, metric: true })), ...known.slice(MODEL_AT)];
  for (const f of all) f.unit = f.key === "seconds" ? "s" : "";
  return all.filter(f => runs.some(r => columnOf(r, f) && columnOf(r, f).n));
}

function columnOf(run, figure) { return run[figure.table].column.get(figure.key); }
function xOf(run, figure, axis) { return run[figure.table].x[axis].at; }

// The mean of a value and those before it, each weighted `by` times the next; as if nothing had come before the first.
function smoothed(values, by) {
  if (!by) return values;
  let sum = 0, weight = 0;
  return values.map(v => {
    if (v === null) return null;
    sum = by * sum + (1 - by) * v;
    weight = by * weight + (1 - by);
    return sum / weight;
  });
}

// What a curve has at x, between its points along a line; null outside of them and where a point has no value.
function between(xs, ys, x) {
  const n = xs.length, k = nearest(xs, x);
  if (k < 0 || x < xs[0] || x > xs[n - 1]) return null;
  const i = xs[k] <= x ? k : k - 1, j = Math.min(i + 1, n - 1), a = ys[i], b = ys[j];
  if (xs[i] === x || i === j) return a;
  return a === null || b === null ? null : a + (b - a) * (x - xs[i]) / (xs[j] - xs[i]);
}

// The values less those of another curve at the same x.
function minus(xs, ys, ofX, ofY) {
  return ys.map((y, k) => { const there = y === null ? null : between(ofX, ofY, xs[k]); return there === null ? null : y - there; });
}

// [lower, upper] limits of an axis: a value is an outlier that lies further from the middle 96 of 100 than these are wide. Few values have none.
function limitsOf(values) {
  const n = values.length, sorted = Float64Array.from(values).sort();
  if (n < 25) return [-Infinity, Infinity];
  const low = sorted[Math.floor((n - 1) * .02)], high = sorted[Math.ceil((n - 1) * .98)];
  return high > low ? [low - (high - low), high + (high - low)] : [-Infinity, Infinity];
}

// The index of the number nearest to x in ascending numbers; -1 of none.
function nearest(numbers, x) {
  let lo = 0, hi = numbers.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (numbers[mid] < x) lo = mid + 1; else hi = mid; }
  return lo === numbers.length ? lo - 1 : lo && x - numbers[lo - 1] < numbers[lo] - x ? lo - 1 : lo;
}

// Where on an axis a run went on from a saved state: at the last row up to that step.
function restartAt(run, start, axis) {
  if (axis === "step") return start.step;
  const steps = run.steps.x.step.at, x = run.steps.x[axis].at;
  let k = -1;
  while (k + 1 < steps.length && steps[k + 1] <= start.step) k++;
  return k < 0 ? 0 : x[k];
}

// [lowest, highest] x of the runs that are shown.
function extent(d, axis) {
  let from = Infinity, to = -Infinity;
  for (const run of d.runs) {
    if (!run.shown) continue;
    for (const table of [run.steps, run.validations]) {
      const x = table.x[axis].at;
      if (!x.length) continue;
      from = Math.min(from, x[0]);
      to = Math.max(to, x[x.length - 1]);
    }
  }
  return from > to ? [0, 1] : from === to ? [from - .5, to + .5] : [from, to];
}

// ── figures as people read them ──
function numberText(x) {
  if (x === null || x === undefined) return "—";
  const size = Math.abs(x);
  if (size >= 1e5 && size < 1e15) return Number.isInteger(x) || size >= 1e6 ? grouped(x) : x.toLocaleString("en-US", { maximumFractionDigits: 1 });
  if (x && (size < 1e-4 || size >= 1e15)) return x.toExponential(4).replace(/\.?0+e/, "e").replace("-", "−").replace("e-", "e−");
  return size >= 1e3 ? Number(x.toPrecision(6)).toLocaleString("en-US", { maximumFractionDigits: 3 }) : String(Number(x.toPrecision(6))).replace("-", "−");
}
function secondsText(x) {
  if (x >= 3600) return Math.floor(x / 3600) + " h " + String(Math.floor(x / 60) % 60).padStart(2, "0") + " min";
  if (x >= 60) return Math.floor(x / 60) + " min " + String(Math.floor(x % 60)).padStart(2, "0") + " s";
  if (x >= .9995) return x.toPrecision(4) + " s";
  return x >= .9995e-3 ? (x * 1e3).toPrecision(4) + " ms" : (x * 1e6).toPrecision(4) + " us";
}
function valueText(figure, x) { return x === null || x === undefined ? "—" : figure.unit === "s" ? secondsText(x) : numberText(x); }
function axisText(axis, x, samples) {
  return axis === "time" ? secondsText(Math.max(0, x)) : axis === "step" ? "step " + grouped(x) : numberText(x) + (samples ? " samples" : " tokens");
}
