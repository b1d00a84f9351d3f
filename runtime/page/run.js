// ── run.js: puts the page together: state, what the pointer and the keyboard do, when to draw. ──────────────────────────────

const data = readRuns($("runs").textContent);
const state = { data, axis: "step", x0: 0, x1: 1, smooth: 0, clip: true, against: null, log: false, cursor: null, range: null, colour: null };
let charts = [];

// ── the head ──
function head() {
  const { runs, models } = data, plural = (n, word) => grouped(n) + " " + word + (n === 1 ? "" : "s");
  const title = models.join(", ") || (runs.length === 1 ? runs[0].label : plural(runs.length, "run"));
  document.title = title + " · shardc run";
  $("title").textContent = title;
  const said = [];
  if (runs.length > 1) said.push(plural(runs.length, "run") + (models.length > 1 ? " of different models" : ""));
  for (const run of runs.slice(0, 1)) {
    const s = run.last;
    if (runs.length > 1 || !s) continue;
    said.push(s.target + ", " + plural(s.world, "rank"));
    if (s.started) said.push((run.restarts.length ? "resumed " : "started ") + s.started);
    if (data.going) said.push("running: step " + grouped(Math.max(lastStep(run), s.step)) + " of " + grouped(s.steps) + " when this page was written");
  }
  const wide = Math.max(...runs.flatMap(r => [r.steps.width, r.validations.width]));
  if (wide > 1) said.push("up to " + plural(wide, "step") + " a point");
  $("subtitle").textContent = said.join(" · ");
}
function lastStep(run) { const x = run.steps.x.step; return x.n ? x.last : 0; }

function percent(x) { return (x < 0 ? "−" : "+") + (Math.abs(x) * 100).toFixed(Math.abs(x) < .1 ? 2 : 1) + " %"; }

function swatch(run) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [k, v] of [["class", "swatch"], ["viewBox", "0 0 26 10"], ["aria-hidden", "true"]]) svg.setAttribute(k, v);
  for (const [k, v] of [["x1", 0], ["y1", 5], ["x2", 26], ["y2", 5], ["stroke", state.colour.runs[run.index % 8]], ["stroke-width", 3], ["stroke-dasharray", DASHES[(run.index >> 3) % DASHES.length].join(" ") || "none"]])
    line.setAttribute(k, v);
  svg.append(line);
  return svg;
}

function legend() {
  $("legend").replaceChildren(...data.runs.map(run => make("button", { type: "button", "aria-pressed": String(run.shown), "data-run": run.index, title: run.name, click: () => toggle(run) },
    swatch(run), make("span", { class: "name" }, run.label))));
}
function toggle(run) {
  run.shown = !run.shown;
  const focused = document.activeElement;
  $("legend").querySelector("[data-run='" + run.index + "']").setAttribute("aria-pressed", String(run.shown));
  if (focused) focused.focus();
  say(run.label + (run.shown ? " is shown" : " is hidden"));
  labels();
  request();
  reading();
}

// A cell of a run's column; without attributes it has no value.
function cell(run, attributes, text) {
  const td = make("td", { "data-name": run.label, ...(attributes ? { "data-run": run.index, ...attributes } : { class: "dim" }) }, attributes ? text : "—");
  td.style.setProperty("--of", "var(--run-" + run.index % 8 + ")");
  return td;
}
// A table wider than its place has a line for each of its runs.
function fit(table) { if (table.scrollWidth > table.parentElement.clientWidth) table.classList.add("stacked"); }

// ── final values: a row a figure, a column a run ──
function totals() {
  const rows = [], row = (key, name, of) => {
    const cells = data.runs.map(of);
    if (cells.every(c => c === null || c === undefined)) return;
    const base = state.against === null ? null : cells[state.against], than = (c, i) => base && i !== state.against && typeof c[0] === "number" && base[0] > 0 && c[0] !== base[0] ? " (" + percent(c[0] / base[0] - 1) + ")" : "";
    rows.push(make("tr", {}, make("th", { scope: "row" }, named(name, name)), ...cells.map((c, i) => cell(data.runs[i], c && { "data-key": key, "data-value": c[0], title: c[2] }, c && c[1] + than(c, i)))));
  };
  const value = (x, text, title) => x > 0 || x < 0 || x === 0 ? [x, text, title] : null, bytes = x => x > 0 ? [x, bytesText(x), grouped(x) + " B"] : null;
  const settings = [...new Set(data.runs.flatMap(run => run.last ? run.last.settings.map(s => s[0]) : []))].map(name => [name, data.runs.map(run => run.last && (run.last.settings.find(s => s[0] === name) || [])[1])]);
  const differs = ([, values]) => values.some(v => v !== values[0]), setting = ([name, values]) => row("setting " + name, name.replace(/^option /, ""), run => values[run.index] === undefined || values[run.index] === null ? null : [values[run.index], values[run.index]]);
  settings.filter(differs).forEach(setting); // what tells the runs apart comes first, what they have in common last
  const column = (table, key) => run => run[table].column.get(key);
  const steps = run => run.steps.x.step;
  row("steps", "steps logged", run => [run.steps.lines, grouped(run.steps.lines)]);
  row("last_step", "last step", run => steps(run).n ? [steps(run).last, grouped(steps(run).last)] : null);
  for (const [table, key, name] of [["steps", "loss", "loss"], ["validations", "val_loss", "validation loss"]]) {
    const c = column(table, key), has = run => c(run) && c(run).n;
    row(key + "_first", name + ", first", run => has(run) ? value(c(run).first, numberText(c(run).first)) : null);
    row(key + "_last", name + ", last", run => !has(run) ? null : c(run).last === null ? ["null", "not finite"] : value(c(run).last, numberText(c(run).last)));
    row(key + "_best", name + ", best", run => has(run) ? value(c(run).least, numberText(c(run).least) + " at step " + grouped(c(run).least_step)) : null);
  }
  for (const [key, name] of [["tok_s", "tok/s, median"], ["samples_s", "samples/s, median"]])
    row(key, name, run => { const c = column("steps", key)(run); return c && c.n ? value(c.median, numberText(c.median)) : null; });
  row("seconds", "time of steps and validations", run => [run.seconds, secondsText(run.seconds)]);
  row("restarts", "restarts", run => [run.restarts.length, run.restarts.length ? grouped(run.restarts.length) + " at step " + run.restarts.map(s => grouped(s.step)).join(", ") : "0"]);
  const actual = run => { const c = column("steps", "seconds")(run); return c && c.n ? c.median : null; }, predicted = run => run.last && run.last.predicted_s > 0 ? run.last.predicted_s : null;
  row("predicted_s", "step, predicted", run => predicted(run) && [predicted(run), secondsText(predicted(run))]);
  row("actual_s", "step, median", run => actual(run) === null ? null : [actual(run), secondsText(actual(run))]);
  row("ratio", "median over predicted", run => predicted(run) && actual(run) !== null ? [actual(run) / predicted(run), (actual(run) / predicted(run)).toFixed(2)] : null);
  row("position", "data seen", run => run.position > 0 ? [run.position, grouped(run.position) + (run.samples ? " samples" : " tokens")] : null);
  row("epochs", "passes over the data", run => run.last && run.last.epoch > 0 ? [run.position / run.last.epoch, numberText(run.position / run.last.epoch)] : null);
  row("arena", "arena on each rank, predicted", run => run.last && bytes(run.last.arena));
  row("allocated", "arena on each rank, allocated", run => run.last && bytes(run.last.allocated));
  row("host", "host memory on each rank", run => run.last && bytes(run.last.host));
  row("device_predicted", "process on the fullest GPU, predicted", run => bytes(run.device_predicted));
  row("device_used", "process on the fullest GPU, used", run => bytes(run.device_used));
  for (const f of data.figures)
    if (f.metric || ["grad_norm", "lr", "scale"].includes(f.key))
      row((f.metric ? "metric " : "last ") + f.key, f.title + ", last", run => { const c = columnOf(run, f); return !c || !c.n ? null : c.last === null ? ["null", "not finite"] : [c.last, numberText(c.last)]; });
  const same = settings.filter(s => !differs(s));
  if (same.length && data.runs.length > 1) rows.push(make("tr", { class: "group" }, make("th", { colspan: 1 + data.runs.length, scope: "rowgroup" }, "the same in all runs")));
  same.forEach(setting);
  $("totals").replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...data.runs.map(run => make("th", { scope: "col" }, named(run.label, run.label))))), make("tbody", {}, ...rows));
}

// ── charts ──
function build() {
  const added = data.figures.map((figure, i) => {
    const canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": "chart", "aria-describedby": "keys-short" });
    const section = make("section", { class: "chart", "aria-labelledby": "figure-" + i }, make("h2", { id: "figure-" + i, title: figure.title }, figure.title), canvas);
    const chart = new Chart(canvas, figure, state);
    chart.heading = section.firstChild;
    pointers(chart);
    return [section, chart];
  });
  charts = added.map(a => a[1]);
  $("charts").replaceChildren(...(added.length ? added.map(a => a[0]) : [make("p", { class: "dim" }, "No step has been logged yet.")]));
  labels();
}
function labels() { for (const chart of charts) chart.canvas.setAttribute("aria-label", chart.sentence()); }
function arrange() {
  charts.forEach(chart => chart.resize());
  for (const id of ["at", "totals"]) {
    $(id).classList.remove("stacked");
    fit($(id));
  }
  request();
}

function drawAll() {
  for (const chart of charts) {
    const box = chart.canvas.getBoundingClientRect();
    if (printing || box.bottom > -300 && box.top < innerHeight + 300) chart.draw();
  }
}
function seen() { return [state.x0, state.x1]; }

// ── at the cursor: every figure of every run that is shown ──
let readingAsked = false;
function reading() {
  if (readingAsked) return;
  readingAsked = true;
  requestAnimationFrame(() => {
    readingAsked = false;
    const runs = data.runs.filter(r => r.shown), { cursor, axis } = state;
    $("at-title").textContent = cursor === null ? "At the cursor" : "At " + axisText(axis, cursor, runs.length && runs[0].samples);
    if (cursor === null || !runs.length)
      return $("at").replaceChildren(make("tbody", {}, make("tr", {}, make("td", { class: "dim" }, "Point at a curve, or press full stop."))));
    const rows = charts.map(chart => make("tr", {}, make("th", { scope: "row" }, named(chart.figure.title, chart.figure.title)), ...runs.map(run => {
      const at = chart.value(run, cursor);
      return cell(run, at && { "data-figure": chart.figure.key, "data-table": chart.figure.table, "data-step": at.last, "data-value": at.value === null ? "null" : at.value, title: spanText(chart, at) },
        at && valueText(chart.figure, at.value) + (chart.other && run !== chart.other && at.raw !== null ? " (" + signed(chart.figure, at.raw) + ")" : ""));
    })));
    $("at").replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...runs.map(run => make("th", { scope: "col" }, named(run.label, run.label))))), make("tbody", {}, ...rows));
    fit($("at"));
  });
}
function signed(figure, x) { return (x < 0 ? "−" : "+") + valueText(figure, Math.abs(x)); }
function spanText(chart, at) {
  const t = x => valueText(chart.figure, x);
  return at.first === at.last ? "step " + grouped(at.last) : "steps " + grouped(at.first) + " to " + grouped(at.last) + ": " + t(at.low) + " to " + t(at.high);
}
function tipText(chart) {
  const above = state.axis === "step" ? Math.round(state.cursor) : null; // the step that stands above already
  const lines = chart.runs().map(run => {
    const at = chart.value(run, state.cursor);
    if (!at) return null;
    const less = chart.other && at.raw !== null && run !== chart.other ? ", " + signed(chart.figure, at.raw) + " to " + chart.other.label.slice(0, 60) : "";
    const smooth = at.shown !== at.raw && at.shown !== null ? " (smoothed " + (less ? signed(chart.figure, at.shown) : valueText(chart.figure, at.shown)) + ")" : "";
    return (data.runs.length > 1 ? run.label.slice(0, 60) + ": " : "") + valueText(chart.figure, at.value) + less + smooth + (above === at.first && above === at.last ? "" : "  " + spanText(chart, at));
  }).filter(Boolean);
  const predicted = chart.runs().flatMap(run => chart.predicted(run).slice(-1).map(s => (data.runs.length > 1 ? run.label.slice(0, 60) + ": " : "") + "predicted " + secondsText(s.predicted_s)));
  return [...lines, ...predicted].join("\n");
}

// ── the view ──
function view(x0, x1) {
  const [from, to] = extent(data, state.axis), whole = to - from, wide = Math.min(Math.max(x1 - x0, whole * 1e-6), whole * 1.1), middle = Math.min(Math.max((x0 + x1) / 2, from), to);
  state.x0 = middle - wide / 2;
  state.x1 = middle + wide / 2;
  request();
}
function whole() { const [from, to] = extent(data, state.axis), room = (to - from) * .02; view(from - room, to + room); }
function pan(by) { view(state.x0 + by, state.x1 + by); }
function zoom(factor, x) { view(x - (x - state.x0) * factor, x + (state.x1 - x) * factor); }
function setAxis(axis) {
  state.axis = $("axis").value = axis;
  state.cursor = null;
  whole();
  reading();
}
function setLog(on) {
  state.log = on;
  $("log").setAttribute("aria-pressed", String(on));
  request();
}
function setClip(on) {
  state.clip = on;
  $("clip").setAttribute("aria-pressed", String(on));
  request();
}
// All curves less that of a run; null: as they are.
function setAgainst(index) {
  state.against = index;
  $("against").value = index === null ? "" : String(index);
  for (const chart of charts) chart.heading.textContent = chart.figure.title + (chart.other ? ", minus " + chart.other.label : "");
  totals();
  arrange();
  labels();
  reading();
}
function setSmooth(by) {
  state.smooth = Number(by);
  $("smooth").value = by;
  $("smooth-shown").textContent = String(state.smooth);
  request();
}
function setCursor(x) {
  state.cursor = x;
  request();
  reading();
}
// To the row before or after the cursor, of the first run that is shown.
function step(by) {
  const run = data.runs.find(r => r.shown && r.steps.x.step.n);
  if (!run) return;
  const x = run.steps.x[state.axis].at, k = state.cursor === null ? by > 0 ? Math.max(0, nearest(x, state.x0)) : nearest(x, state.x1) : nearest(x, state.cursor) + by;
  const to = Math.min(Math.max(k, 0), x.length - 1);
  if (x[to] < state.x0 || x[to] > state.x1) pan(x[to] - (state.x0 + state.x1) / 2);
  setCursor(x[to]);
  const focused = charts.find(c => c.canvas === document.activeElement) || charts[0];
  say(axisText(state.axis, x[to], run.samples) + ", " + focused.figure.title + " " + tipText(focused).replace(/\n/g, ", "));
}

// ── pointer ──
function pointers(chart) {
  const { canvas } = chart, at = event => event.clientX - canvas.getBoundingClientRect().left;
  let drag = null;
  canvas.addEventListener("pointerdown", event => {
    if (event.button) return;
    drag = { x: at(event), x0: state.x0, x1: state.x1, range: event.shiftKey, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const x = at(event);
    if (!drag) return hover(chart, x, event);
    if (Math.abs(x - drag.x) > 3) drag.moved = true;
    if (!drag.moved) return;
    $("tip").hidden = true;
    if (drag.range) state.range = [chart.at(drag.x), chart.at(x)];
    else {
      const by = (drag.x - x) * (drag.x1 - drag.x0) / (chart.width - LEFT - RIGHT);
      view(drag.x0 + by, drag.x1 + by);
    }
    request();
  });
  canvas.addEventListener("pointerup", event => {
    const range = drag && drag.range ? state.range : null;
    if (drag && !drag.moved) { // a finger does not hover
      hover(chart, at(event), event);
      sheet(state.cursor !== null);
    }
    drag = state.range = null;
    if (range) view(Math.min(...range), Math.max(...range));
    request();
  });
  canvas.addEventListener("pointercancel", () => { drag = state.range = null; request(); });
  canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  canvas.addEventListener("dblclick", whole);
  canvas.addEventListener("wheel", event => { // a plain wheel scrolls the page
    const { zooms, factor, dx } = turnOf(event);
    if (zooms) zoom(factor, chart.at(Math.max(at(event), LEFT)));
    else if (dx) pan(dx * (state.x1 - state.x0) / (chart.width - LEFT - RIGHT));
    else return;
    event.preventDefault();
  }, { passive: false });
}

// In a narrow window the values at the cursor come up from below.
function sheet(open) { document.querySelector("aside").classList.toggle("sheet", open); }

function hover(chart, px, event) {
  const inside = px >= LEFT && px <= chart.width - RIGHT;
  if (inside) setCursor(chart.at(px));
  showTip(inside ? axisText(state.axis, state.cursor, data.runs[0].samples) + "\n" + tipText(chart) : "", event, innerWidth);
}

function recoloured() {
  const get = colours();
  state.colour = Object.fromEntries(["ground", "text", "dim", "line", "cursor"].map(key => [key, get(key)]));
  state.colour.runs = [0, 1, 2, 3, 4, 5, 6, 7].map(i => get("run-" + i));
  legend();
}

// ── a page that a program writes anew while it runs: loaded again if asked to, with the view as it was ──
const KEPT = "shardc-run";
function follow() {
  let timer = 0;
  const set = on => {
    $("follow").checked = on;
    clearTimeout(timer);
    if (on) timer = setTimeout(() => { keep(); location.reload(); }, 5000);
  };
  const keep = () => {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify({ axis: state.axis, smooth: state.smooth, clip: state.clip, against: state.against, log: state.log, hidden: data.runs.filter(r => !r.shown).map(r => r.index),
        theme: document.documentElement.dataset.theme, top: scrollY }));
    } catch { /* a browser that keeps nothing for files: the page begins anew */ }
  };
  let kept = null;
  try { kept = JSON.parse(sessionStorage.getItem(KEPT)); sessionStorage.removeItem(KEPT); } catch { kept = null; }
  if (kept) {
    theme(kept.theme);
    setAxis(kept.axis);
    setSmooth(kept.smooth);
    setLog(kept.log);
    setClip(kept.clip);
    if (data.runs[kept.against]) setAgainst(kept.against);
    kept.hidden.forEach(i => data.runs[i] && toggle(data.runs[i]));
    scrollTo(0, kept.top);
  }
  $("follow-label").hidden = !data.going;
  $("follow").addEventListener("change", event => set(event.target.checked));
  if (data.going && kept) set(true);
}

function start() {
  const axes = ["step", "position", "time"];
  viewing(() => {});
  head();
  build();
  memoryPanel();
  opsPanel();
  totals();
  keys({ ",": () => step(-1), ".": () => step(1), l: () => setLog(!state.log), c: () => setClip(!state.clip), x: () => setAxis(axes[(axes.indexOf(state.axis) + 1) % 3]),
    Escape: () => { setCursor(null); sheet(false); } });
  $("axis").addEventListener("change", event => setAxis(event.target.value));
  $("smooth").addEventListener("input", event => setSmooth(event.target.value));
  $("against-label").hidden = data.runs.length < 2;
  $("against").replaceChildren(make("option", { value: "" }, "nothing"), ...data.runs.map(run => make("option", { value: run.index }, run.label)));
  $("against").addEventListener("change", event => setAgainst(event.target.value === "" ? null : Number(event.target.value)));
  $("clip").addEventListener("click", () => setClip(!state.clip));
  $("log").addEventListener("click", () => setLog(!state.log));
  $("whole").addEventListener("click", whole);
  $("sheet-close").addEventListener("click", () => sheet(false));
  addEventListener("scroll", request, { passive: true });
  whole();
  arrange();
  paint();
  reading();
  follow();
  new ResizeObserver(arrange).observe($("charts"));
  timing.first = performance.now();
}

start();
window.report = { state, data, timing, view, toggle, setAxis, setLog, setSmooth, setClip, setAgainst, setCursor, get charts() { return charts; } }; // for the tests and the curious
