// ── diff_page.js: puts the page of two plans together: state, the head, the list of changes, keys of its own. ───────────────

const began = performance.now();
const diff = readDiff(name => $(name).textContent);
// side: whose event the keys move; only: the change that is shown alone, or -1; marked: pairs of the row of the list that is open
const state = { diff, program: null, arena: DEVICE, t0: 0, t1: 1, selection: null, side: "b", hover: null, cursor: null, range: null, only: -1, marked: [] };
const painter = new PairPainter($("canvas"), state, diff);
const details = new PairDetails(state, diff, select);

// ── the head ──
const FIGURES = {
  peak: ["peak (arena)", "bytes", true, true], bound: ["lower bound", "bytes", true], host: ["host arena", "bytes", true], library: ["library", "bytes", true],
  step: ["step", "time", true, true], exposed: ["exposed communication", "time", true, true], tokens: [(diff.tokens ? "tok" : "samples") + "/s of a rank", "count", false], mfu: ["MFU, causal attention", "share", false],
}; // title, measure, whether less is better, whether it is shown where it does not differ

function head() {
  const { a, b } = diff, one = a.model === b.model ? b.model : a.model + " → " + b.model;
  document.title = one + ", A over B · shardc diff";
  $("title").textContent = one;
  $("subtitle").append(badge("a"), " over ", badge("b"), " · " + b.target + (b.device !== b.target ? " (" + b.device + ")" : "") + ", world " + b.world + " on " + b.nodes + (b.nodes === 1 ? " node" : " nodes") +
    (diff.same ? " · A and B are the same: no figure, event or storage differs" : diff.settings.length ? " · settings that differ:" : " · no setting differs"));
  const [one_a, one_b] = diff.work, shared = a.options.filter(([name, x, by]) => x !== "" && b.options.some(o => o[0] === name && o[1] === x && o[2] === by));
  if (one_a !== one_b) $("work").append(make("strong", { "data-a": one_a, "data-b": one_b }, "A step of B trains " + grouped(one_b) + (diff.tokens ? " tokens" : " samples") + ", one of A " + grouped(one_a) + ": compare " + (diff.tokens ? "tokens" : "samples") + " a second."));
  $("shared").append(...(shared.length ? ["the same in both: ", make("span", { class: "name" }, ...shared.flatMap((o, i) => [i ? " · " : "", optionOf(o)]))] : []));
  const shown = x => x === null ? "(none)" : x === "" ? "(empty)" : x;
  $("settings").append(...diff.settings.map(([name, x, y]) => make("li", { "data-setting": name }, named(name), " ", make("strong", {}, named(shown(x)), " → ", named(shown(y))))));
  $("bounds").append(...diff.bounds.map(([text, missed]) => make("li", { class: missed ? "missed" : "kept", "data-bound": text }, missed ? "✗ --fail-if: " + missed : "✓ --fail-if: " + text + " is kept")));
  for (const [key, x, y] of diff.figures) {
    const [title, measure, less, always] = FIGURES[key];
    if (!always && same(x, y)) continue;
    const side = (s, v) => make("span", { "data-side": s, "data-value": v, title: measure === "bytes" ? grouped(v) + " B" : false }, badge(s), " ", MEASURES[measure](v));
    $("totals").append(make("div", { "data-total": key }, make("dt", {}, title), make("dd", {}, side("a", x), side("b", y), delta(measure, x, y, less && details.less(measure)))));
  }
  diff.programs.forEach((p, i) => $("program").append(make("option", { value: i }, p.name + (p.indices.a < 0 ? " (only in B)" : p.indices.b < 0 ? " (only in A)" : ""))));
  ["device", "host"].forEach((name, i) => { if (!i || SIDES.some(s => diff[s].arena_bytes[i])) $("arena").append(make("option", { value: i }, name)); });
  $("arena").parentElement.hidden = $("arena").options.length < 2;
}

// What happened to events: a button for each change, which shows it alone.
function kinds() {
  const g = state.program, counts = g.counts.events;
  const button = c => {
    const b = make("button", { type: "button", "data-kind": diff.event_changes[c], "aria-pressed": String(state.only === c), click: () => showOnly(state.only === c ? -1 : c) }, glyph(EVENT_KIND, c), " " + diff.event_changes[c] + " " + grouped(counts[c]));
    return b;
  };
  const unchanged = SIDES.reduce((n, s) => n + (g[s] ? g[s].n - g.pairOf[s].size : 0), 0), line = (text, mark) => make("span", {}, mark, " " + text);
  $("kinds").replaceChildren(
    make("span", {}, swatch(painter.colour.same), "not changed " + grouped(g.a && g.b ? unchanged / 2 : 0)), ...counts.map((n, c) => n > 0 && button(c)).filter(Boolean), make("span", { class: "gap" }),
    line("A", "╌╌"), line("B", "──"), make("span", {}, swatch(painter.colour.more), "B holds more"), make("span", {}, swatch(painter.colour.less), "B holds less"));
}
function showOnly(c) {
  state.only = c;
  state.marked = [];
  kinds();
  changes();
  request();
  const pressed = c >= 0 && $("kinds").querySelector("[aria-pressed=true]");
  if (pressed) pressed.focus();
  say(c < 0 ? "all changes are shown" : "only " + diff.event_changes[c] + " is shown");
}

// ── showing a program ──
function show(index) {
  if (index !== diff.shown && document.readyState === "loading") // its blocks stand behind this script
    return addEventListener("DOMContentLoaded", () => show(index), { once: true });
  const g = state.program = diff.programs[index].prepare();
  $("program").value = index;
  Object.assign(state, { selection: null, hover: null, cursor: null, only: -1, marked: [] });
  const side = s => g[s] ? [badge(s), " " + grouped(g[s].n) + " events, " + timeText(g[s].step_us) + ", peak ", bytesOf(g[s].peak[DEVICE])] : [badge(s), " has no such program"];
  $("program-figures").replaceChildren(...side("a"), " · ", ...side("b"));
  whole();
  arrange();
  kinds();
  changes();
  panels();
}

function arrange() {
  painter.layout();
  $("scroll").style.flexBasis = painter.height + "px";
  sizeStage();
  const rows = [], at = placer(rows);
  for (const [name, title] of [["phases", "Phases of compute"], ["streams", "Streams"], ["memory", "Memory"]]) at(make("div", { class: "title" }, title), painter.sections[name], GAP - 3);
  for (const r of painter.phaseRows) at(make("div", {}, badge(r.side)), r.y, r.h);
  for (const r of painter.streamRows) at(make("div", {}, badge(r.side), " ", r.name), r.y, r.h);
  bytesLabels(at, painter.memoryAt, painter.memoryScale());
  $("rows").replaceChildren(...rows);
  request();
}
function extent() { return state.program.duration; }
function relabel() { if (state.program) { kinds(); panels(); } }

// ── the list of changes, and the search that narrows it ──
function changes() {
  const g = state.program, words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const left = (kind, list) => words.length ? list.filter(pair => g.holds(kind, pair, words)) : list, mark = list => { state.marked = list; request(); };
  const section = (kind, title, list) => details.section(kind, title, left(kind, list), list, state.only, mark);
  const other = words.length ? g.unchanged(words, 100) : null, item = (kind, pair) => {
    const [side, s] = kind === EVENT_KIND ? [pair.b >= 0 ? "b" : "a"] : g.sideOf(pair);
    return details.one(kind, pair, make("span", { class: "change" }, make("span"), make("span", {}, kind.name), make("span", { class: "what" }, named(kind === EVENT_KIND ? g.id(pair) + "  " + painter.eventLabel(side, pair[side]) + "  " + g[side].plan.phases[g[side].phase[pair[side]]] : s.name + "  " + (s.owner || "(model)")))));
  };
  $("changes").replaceChildren(section(EVENT_KIND, "Events of " + g.name, g.events), section(STORAGE_KIND, "Storages of " + g.name, g.storages), section(STORAGE_KIND, "Storages of all programs", diff.shared),
    ...(other ? [make("section", { "data-section": "unchanged" }, make("h2", {}, "Not changed", make("span", { class: "dim" }, ": " + grouped(other.total) + " found" + (other.total > other.events.length + other.storages.length ? ", some of them here" : ""))),
      ...other.events.map(p => item(EVENT_KIND, p)), ...other.storages.map(p => item(STORAGE_KIND, p)))] : []));
  current();
  if (words.length) say(left(EVENT_KIND, g.events).length + " changed events and " + (left(STORAGE_KIND, g.storages).length + left(STORAGE_KIND, diff.shared).length) + " changed storages found, " + other.total + " that have not changed");
}
// The list shows what is selected.
function current() {
  const s = state.selection, kind = s && (s.event ? "event" : "storage"), key = s && kind + s[kind].a + "," + s[kind].b;
  for (const button of document.querySelectorAll("#changes [data-pair]")) button.parentElement.toggleAttribute("aria-current", button.dataset.pair === key);
}
function searching() {
  const items = () => [...$("changes").querySelectorAll("summary, button")].filter(e => e.offsetParent);
  $("search").addEventListener("input", changes);
  $("search").addEventListener("keydown", event => {
    const first = items()[0];
    if (event.key === "ArrowDown" && first) { event.preventDefault(); first.focus(); }
    if (event.key === "Enter" && first) { first.click(); if (first.tagName === "SUMMARY") first.focus(); }
    if (event.key === "Escape") { $("search").value = ""; changes(); $("canvas").focus(); }
  });
  $("changes").addEventListener("keydown", event => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key], list = items(), k = list.indexOf(document.activeElement);
    if (!by || k < 0) return;
    (list[k + by] || $("search")).focus();
    event.preventDefault();
    event.stopPropagation();
  });
}

// ── panels ──
function panels() {
  const s = state.selection;
  $("selection").replaceChildren(...(!s ? [make("p", { class: "dim" }, "Select an event: click on it, or on a row of the list, or search, or use the keys. Both sides are shown here.")] : s.event ? details.event(s.event) : details.storage(s.storage)));
}
function tables() {
  $("sums").append(...[details.sums("Peak by class: bytes alive at each plan's peak", "peak_classes", "bytes", 8), details.sums("Peak by module", "peak_modules", "bytes", 6), details.sums("Time of a step by stream and phase, all events", "time_classes", "time", 8),
    details.sums("Time of a step by module, all events", "time_modules", "time", 6), details.sums("Exposed communication, by what is waited for", "exposed_modules", "time", 6)].filter(Boolean));
}

// selection: { event: pair } or { storage: pair }, or null. bring: move the view to it. side: whose event the keys move from. first: the panel that
// is to be seen first; time: whose bytes by class are shown, or undefined.
function select(selection, bring, side, first = "selection", time) {
  if (selection && document.readyState === "loading") // details stand behind this script
    return addEventListener("DOMContentLoaded", () => select(selection, bring, side, first, time), { once: true });
  state.selection = selection;
  state.cursor = null;
  const pair = selection && (selection.event || selection.storage);
  if (pair) state.side = side && pair[side] >= 0 ? side : pair[state.side] >= 0 ? state.side : pair.b >= 0 ? "b" : "a";
  if (selection) say(details.sentence(selection));
  panels();
  $("live").replaceChildren(...(time === undefined ? [] : alive(time)));
  $("sheet-close").after($("live"), $("selection"), $("sums"));
  reveal(selection ? first : "");
  if (selection && bring) bringIntoView(selection);
  current();
  request();
}
function spanOf({ event, storage, span }) { // of both sides
  if (span) return span;
  const g = state.program, spans = SIDES.filter(s => g[s] && (event || storage)[s] >= 0).map(s => event ? [g[s].start[event[s]], g[s].end[event[s]]] : [g[s].from[storage[s]], g[s].to[storage[s]]]);
  return [Math.min(...spans.map(x => x[0])), Math.max(...spans.map(x => x[1]))];
}
function bringIntoView(selection) {
  bringSpan(...spanOf(selection), Boolean(selection.event));
  const row = selection.event ? painter.rowOf(state.side, selection.event[state.side]) : { y: painter.memoryAt, h: MEMORY };
  bringRow(row.y - RULER - GAP, row.h + RULER + GAP + PAIR_ROW + LINKS);
}
function toPeak(side) {
  const index = diff.programs.findIndex(g => g.indices[side] >= 0 && g.indices[side] === diff[side].peak_program);
  if (index >= 0 && diff.programs[index] !== state.program) show(index);
  const p = state.program[side];
  if (!p || p.peak_event < 0) return;
  select({ event: state.program.event(side, p.peak_event) }, true, side, "sums"); // which begin with the bytes at both peaks
  say("Peak of " + side.toUpperCase() + ", " + details.sentence(state.selection));
}

// ── pointer ──
function clicked(hit, x) {
  const g = state.program;
  if (hit.event !== undefined) select({ event: g.event(hit.side, hit.event) }, false, hit.side);
  else if (hit.held !== undefined) select({ event: g.event(hit.side, hit.held) }, false, hit.side);
  else if (hit.phase !== undefined) view(g.phaseRows[hit.side].starts[hit.phase], g.phaseRows[hit.side].ends[hit.phase]);
  else if (hit.memory) {
    const side = g.b ? "b" : "a", p = g[side];
    if (p.leading) select({ event: g.event(side, p.memory(state.arena).at[p.momentAt(painter.time(x))]) }, false, side, "live", painter.time(x));
  } else if (hit.stream !== undefined) select(null);
}
// What a double click zooms to.
function targetOf(hit) {
  const g = state.program, spans = hit.phase !== undefined && g.phaseRows[hit.side];
  return spans ? { span: [spans.starts[hit.phase], spans.ends[hit.phase]] } : hit.side !== undefined && hit.stream === undefined ? { event: g.event(hit.side, hit.event ?? hit.held) } : null;
}
function left() {}
function hover(x, y, event) {
  const hit = painter.hit(x, y), g = state.program, t = painter.time(x), inside = x >= LEFT && t >= 0 && t <= extent();
  state.hover = hit.event !== undefined ? hit : null;
  state.cursor = inside ? t : null;
  let text = "";
  if (hit.event !== undefined) text = details.sentence({ event: g.event(hit.side, hit.event) });
  else if (hit.held !== undefined) text = hit.side.toUpperCase() + ": " + g[hit.side].heldText(hit.held);
  else if (hit.phase !== undefined) {
    const s = g.phaseRows[hit.side];
    text = hit.side.toUpperCase() + ": " + diff[hit.side].phases[s.phase[hit.phase]] + ", " + timeText(s.starts[hit.phase]) + " to " + timeText(s.ends[hit.phase]);
  } else if (hit.memory && inside) text = heldText(t);
  tip(text, event);
  request();
}
// Bytes alive at a time: { sides, in which something runs then; held, of each its event and bytes; rows, [class, in A, in B] }.
function heldAt(t) {
  const g = state.program, sides = SIDES.filter(s => g[s] && g[s].leading && t <= g[s].duration), names = diff.b.classes;
  const at = side => { const m = g[side].memory(state.arena), e = m.at[g[side].momentAt(t)]; return { e, total: m.total[e], of: names.map((_, c) => m.of[e * names.length + c]) }; };
  const held = Object.fromEntries(sides.map(s => [s, at(s)])), of = (s, c) => held[s] ? held[s].of[c] : 0;
  return { sides, held, rows: names.map((name, c) => [name, of("a", c), of("b", c)]).filter(r => r[1] || r[2]).sort((x, y) => Math.abs(y[2] - y[1]) - Math.abs(x[2] - x[1]) || y[2] - x[2]) };
}
function heldText(t) {
  const { sides, held, rows } = heldAt(t);
  return sides.map(s => s.toUpperCase() + ": " + bytesText(held[s].total) + " alive at " + state.program[s].id(held[s].e)).join("\n") +
    rows.map(([name, a, b]) => "\n" + name + ": " + (a === b ? bytesText(b) + ", the same" : bytesText(a) + " → " + bytesText(b) + ", " + deltaText("bytes", a, b))).join("");
}
function alive(t) {
  const { sides, held, rows } = heldAt(t), total = ["all", ...SIDES.map(s => held[s] ? held[s].total : 0)];
  return [make("h2", {}, "Alive at " + timeText(t), ...sides.flatMap(s => [" · ", badge(s), " " + state.program[s].id(held[s].e)])), details.sums("By class", "alive", "bytes", Infinity, [total, ...rows])];
}

// ── keys of this page ──
function selected() { return state.selection && state.selection.event; }
function step(by) { // to the event before or after, on the selection's stream
  const g = state.program, pair = selected(), side = pair ? state.side : g.b ? "b" : "a", p = g[side];
  if (!p.leading) return;
  if (!pair) return select({ event: g.event(side, p.leading.order[Math.min(p.leading.order.length - 1, above(p.leading.ends, Math.max(0, state.t0)))]) }, true, side);
  const s = p.streams.find(s => s.stream === p.stream[pair[side]]), next = s.order[s.order.indexOf(pair[side]) + by];
  if (next !== undefined) select({ event: g.event(side, next) }, true, side);
}
function otherRow(by) { // to the event at that time in the row above or below
  const g = state.program, pair = selected();
  if (!pair) return step(1);
  const p = g[state.side], e = pair[state.side], rows = painter.streamRows.filter(r => r.order.length), k = rows.findIndex(r => r.side === state.side && r.stream === p.stream[e]) + by;
  if (k >= 0 && k < rows.length) select({ event: g.event(rows[k].side, painter.nearest(rows[k], (p.start[e] + p.end[e]) / 2, Infinity)) }, true, rows[k].side);
}
function nextChange(by) {
  const g = state.program, list = g.inTime.filter(pair => state.only < 0 || has(pair, state.only)), pair = selected();
  if (!list.length) return say("no event has changed");
  const k = list.indexOf(pair), time = pair => pair.b >= 0 ? g.b.start[pair.b] : g.a.start[pair.a], from = pair ? time(pair) : by > 0 ? -1 : Infinity;
  const next = k >= 0 ? list[k + by] : by > 0 ? list.find(p => time(p) >= from) : list.findLast(p => time(p) <= from);
  if (next) select({ event: next }, true);
}
let atPeak = "a";

function start() {
  timelines();
  head();
  tables();
  pointers();
  timelineKeys({ ArrowUp: () => otherRow(-1), ArrowDown: () => otherRow(1), ",": () => step(-1), ".": () => step(1), j: () => nextChange(1), k: () => nextChange(-1), Escape: () => select(null),
    p: () => toPeak(atPeak = selected() && atPeak === "b" ? "a" : "b") });
  searching();
  $("program").addEventListener("change", event => show(Number(event.target.value)));
  $("arena").addEventListener("change", event => { state.arena = Number(event.target.value); arrange(); });
  for (const side of SIDES) $("peak-" + side).addEventListener("click", () => toPeak(side));
  if (diff.shown >= 0) {
    show(diff.shown);
    paint();
    new ResizeObserver(arrange).observe($("scroll"));
  }
  timing.first = performance.now();
  timing.script = timing.first - began;
}

start();
window.shardc = { state, painter, timing, select, view, show, diff }; // for the tests and the curious
