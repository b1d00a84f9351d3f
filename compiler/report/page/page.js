// ── page.js: puts the page together: state, what the pointer and the keyboard do, when to draw. ─────────────────────────────

const began = performance.now();
const plan = readPlan(name => $(name).textContent);
const state = { plan, program: null, arena: DEVICE, t0: 0, t1: 1, selection: null, hover: null, cursor: null, range: null, critical: false, addresses: null, actual: plan.actual_us !== undefined };
const painter = new Painter($("canvas"), state);
const details = new Details(state, select, painter);

// ── the head ──
function head() {
  document.title = plan.model + " · shardc plan";
  $("title").textContent = plan.model;
  $("subtitle").replaceChildren(plan.target + (plan.device !== plan.target ? " (" + plan.device + ")" : "") + ", world " + plan.world + " on " + plan.nodes + (plan.nodes === 1 ? " node" : " nodes"),
    ...(plan.policies ? [" · ", make("strong", {}, "policy "), named(plan.policies)] : []), ...plan.options.filter(o => o[1] !== "").flatMap(o => [" · ", optionOf(o)]), plan.trust ? " · times: " + plan.trust : "");
  const total = (key, name, text, value, title, bad) => $("totals").append(make("div", { class: bad ? "bad" : false, title }, make("dt", {}, name), make("dd", { "data-total": key, "data-value": value }, text)));
  const percent = plan.step_us > 0 ? " · " + (100 * plan.exposed_us / plan.step_us).toFixed(1) + " %" : "";
  if (plan.microbatches) {
    total("step_us", "step", timeText(plan.step_us), plan.step_us, "Predicted time of a step" + (plan.microbatches > 1 ? " of " + plan.microbatches + " microbatches" : ""));
    if (state.actual) total("actual_us", "step in the run", timeText(plan.actual_us), plan.actual_us, "Median of the steps of the run: " + plan.actual_files);
    total("exposed_us", "exposed communication", timeText(plan.exposed_us) + percent, plan.exposed_us, "Time in which compute waits for communication");
    for (const count of ["full", "causal"]) {
      const key = "mfu_" + count + "_attention", share = plan[key], how = count === "full" ? "in full, as PaLM counts" : "by half where it is causal";
      if (share > 0) total(key, "MFU, " + count + " attention", share.toFixed(2), share, "Model FLOP utilization: the model's arithmetic, with attention's square " + how + ", over what the device could do in that time");
    }
    const tokens = plan.tokens_per_second > 0, rate = tokens ? plan.tokens_per_second : plan.samples_per_second;
    total(tokens ? "tokens_per_second" : "samples_per_second", (tokens ? "tok/s" : "samples/s") + (plan.target === "cpu" ? " a rank" : " a GPU"), grouped(rate), rate, "");
  }
  total("peak", "arena", bytesText(plan.arena_bytes[DEVICE]), plan.arena_bytes[DEVICE], grouped(plan.arena_bytes[DEVICE]) + " B, exact: what a program allocates. Less is in use at the peak where bytes wait for other streams, or lie between storages");
  total("bound", "lower bound", bytesText(plan.bound_bytes[DEVICE]), plan.bound_bytes[DEVICE], grouped(plan.bound_bytes[DEVICE]) + " B: the most bytes of storages of which no two may share an address. The curve counts single moments, and may stay below");
  if (plan.arena_bytes[1]) total("host", "host arena", bytesText(plan.arena_bytes[1]), plan.arena_bytes[1], grouped(plan.arena_bytes[1]) + " B");
  if (plan.room) {
    const spare = plan.room - plan.arena_bytes[DEVICE];
    total("spare", spare >= 0 ? "spare" : "short of", bytesText(Math.abs(spare)), spare, bytesText(plan.usable_bytes) + " usable, " + bytesText(plan.library_bytes) + " ± " + bytesText(plan.library_tolerance) + " of libraries", spare < 0);
  }
  plan.programs.forEach((p, i) => $("program").append(make("option", { value: i }, p.name)));
  plan.arenas.forEach((name, i) => { if (plan.arena_bytes[i] || !i) $("arena").append(make("option", { value: i }, name)); });
  $("arena").parentElement.hidden = !plan.arena_bytes[1];
}

function legend() {
  const item = (colour, text) => make("span", {}, swatch(colour), text), p = state.program;
  const phases = new Set(p.phase), classes = new Set(p.storages.filter(s => s.arena === state.arena).map(s => s.cls)), product = [...phases].sort()[0] || 0;
  $("legend").replaceChildren(
    ...plan.phases.map((name, i) => phases.has(i) && item(painter.fills[i][MATMUL], name)).filter(Boolean),
    ...(state.critical ? [item(painter.colour.band, "may end later")] : []), item(painter.fills[product][ATTENTION], "attention deeper"), item(painter.fills[product][KERNEL], "other kernels paler"), "underlined: collectives and copies", item(painter.colour.budget, p.leading ? p.leading.name + " waits for another stream" : "waits"),
    make("strong", {}, "Memory"), ...plan.classes.map((name, i) => classes.has(i) && item(painter.classes[i], name)).filter(Boolean));
}

// ── showing a program ──
function show(index) {
  if (index !== plan.shown && document.readyState === "loading") // its block stands behind this script
    return addEventListener("DOMContentLoaded", () => show(index), { once: true });
  state.program = plan.programs[index].prepare();
  $("program").value = index;
  state.selection = state.hover = state.cursor = state.addresses = null;
  summed = null;
  const p = state.program;
  $("program-figures").replaceChildren(
    make("span", { "data-total": "program" }, grouped(p.n) + " events · " + timeText(p.step_us) + " · exposed " + timeText(p.exposed_us) + (p.actual_us === undefined ? "" : " · in the run " + timeText(p.actual_us)) + " · arena "), bytesOf(p.peak[DEVICE]),
    ...(p.peak_event >= 0 && p.peak_event < p.n ? [make("span", {}, ", most in use ", bytesOf(p.memory(DEVICE).total[p.peak_event]))] : []),
    p.bound[DEVICE] ? make("span", {}, ", bound ", bytesOf(p.bound[DEVICE])) : "");
  whole();
  arrange();
  legend();
  panels();
  $("next").replaceChildren(...details.next());
}

// Rows, their labels and the canvas's size; when the program, the window or what is folded changes.
function arrange() {
  painter.room = narrow() || printing ? 0 : $("scroll").clientHeight;
  painter.layout();
  sizeStage();
  const rows = [], at = placer(rows);
  for (const [name, title] of [["streams", "Streams"], ["modules", "Modules"], ["memory", "Memory"], ["addresses", "Addresses"]])
    at(make("div", { class: "title" }, title), painter.sections[name], GAP - 3);
  for (const r of painter.streamRows) {
    at(make("div", {}, r.name), r.y, STREAM_ROW);
    if (r.h > STREAM_ROW) at(make("div", { class: "note" }, "in the run"), r.y + STREAM_ROW - 1, ACTUAL_ROW);
  }
  for (const r of painter.moduleRows) {
    const label = make(r.more ? "button" : "div", r.more ? { type: "button", "aria-expanded": String(r.open), "data-row": r.key, click: () => toggle(r.key), title: r.title + (r.note ? ", " + r.members.length + " alike" : "") } : { title: r.title },
      (r.more ? r.open ? "▾ " : "▸ " : ""), named(r.label), r.note && make("span", { class: "dim" }, " " + r.note));
    label.style.paddingInlineStart = 6 + 10 * r.depth + (r.more ? 0 : 12) + "px";
    at(label, r.y, r.h);
  }
  bytesLabels(at, painter.memoryAt, painter.memoryScale());
  at(make("div", { class: "note" }, state.addresses ? addressText(Math.round(painter.map[0])) + ": a part of the arena. 0 shows all of it." : addressText(0) + ": what outlives programs, then what they use for a while. Point at a rectangle to see its owner."), painter.addressesAt + 2, 90);
  at(make("div", { class: "note" }, addressText(Math.round(painter.map[1]))), painter.addressesAt + painter.mapHeight - 16, 16);
  $("rows").replaceChildren(...rows);
  request();
}

function toggle(key) {
  const open = state.program.modules.open;
  open.has(key) ? open.delete(key) : open.add(key);
  const groups = state.program.modules.groups;
  $("fold").setAttribute("aria-pressed", String(!groups.some(g => open.has(g))));
  arrange();
  const button = [...document.querySelectorAll("[data-row]")].find(b => b.dataset.row === key);
  if (button) button.focus();
  say(key.replace("*", "") + (open.has(key) ? " unfolded" : " folded"));
}

function foldAll() {
  const { open } = state.program.modules, groups = state.program.modules.groups, folded = $("fold").getAttribute("aria-pressed") === "true";
  groups.forEach(g => folded ? open.add(g) : open.delete(g));
  $("fold").setAttribute("aria-pressed", String(!folded));
  arrange();
}

// ── panels ──
function liveEvent() { // whose live set is shown, and how it is called
  const p = state.program;
  if (state.cursor !== null) return [p.memory(state.arena).at[p.momentAt(state.cursor)], "at the cursor, at"];
  if (state.selection && state.selection.event !== undefined) return [state.selection.event, state.selection.event === p.peak_event ? "at the peak," : "at"];
  return p.peak_event >= 0 && p.peak_event < p.n ? [p.peak_event, "at the peak,"] : [p.n ? 0 : -1, "at"];
}
const WHOLE = {};
let summed = null; // what the sums are of
let livePending = false, liveShown = null;
function panels() {
  const s = state.selection;
  $("selection").replaceChildren(...(!s ? [make("p", { class: "dim" }, "Select an event or a rectangle of memory: click, or search, or use the keys.")]
    : isScope(s) ? details.scope(s) : s.event !== undefined ? details.event(s.event) : details.storage(s.storage)));
  const scope = isScope(s) ? s : WHOLE;
  if (scope !== summed && document.readyState !== "loading") { // sums are not on the first paint
    $("sums").replaceChildren(...details.sums(summed = scope));
    $("events").replaceChildren(...details.events(scope));
  }
  $("why").replaceChildren(...(s && s.event !== undefined ? details.why(s.event) : [make("p", { class: "dim" }, "Select an event: here stands why it is where it is, and what it waits for.")]));
  liveShown = null;
  live();
}
function live() {
  if (livePending) return;
  livePending = true;
  requestAnimationFrame(() => {
    livePending = false;
    const [e, why] = liveEvent(), key = e + why + state.arena;
    if (key === liveShown) return;
    liveShown = key;
    $("live").replaceChildren(...(e === undefined || e < 0 ? [] : details.live(e, why)));
  });
}

// selection: { event }, { storage }, { range: [from, to] }, { module: path }, or null. bring: move the view to it. moment: it is the live set at the event that is asked for.
function select(selection, bring, moment) {
  if (selection && document.readyState === "loading") // details stand behind this script
    return addEventListener("DOMContentLoaded", () => select(selection, bring, moment), { once: true });
  state.selection = selection;
  state.cursor = null;
  if (selection) say(details.sentence(selection));
  panels();
  reveal(selection ? moment ? "live" : selection.range ? "sums" : "selection" : "");
  if (selection && bring) bringIntoView(selection);
  request();
}

function spanOf({ event, storage, span, range, module }) {
  const p = state.program;
  if (range || module !== undefined) return new Summary(p, { range, module }).span();
  return span ? span : event !== undefined ? [p.start[event], p.end[event]] : [p.from[storage], p.to[storage]];
}
function bringIntoView(selection) {
  const event = selection.event !== undefined;
  if (isScope(selection)) return;
  bringSpan(...spanOf(selection), event);
  bringRow(event ? painter.box(selection.event)[2] - RULER - GAP : painter.addressesAt - 40, event ? 60 : painter.mapHeight);
}

// The addresses that are seen; of all of them, or of more: null. A byte is never wider than the map.
function viewAddresses(from, to) {
  const all = Math.max(plan.arena_bytes[state.arena], 1), wide = Math.min(Math.max(to - from, 1024), all), low = Math.min(Math.max(from, 0), all - wide);
  state.addresses = wide >= all ? null : [low, low + wide];
  arrange();
}
// A turn of the wheel with Alt above the map.
function zoomAddresses(factor, y) {
  const at = painter.addressAt(y), [from, to] = painter.map;
  viewAddresses(at - (at - from) * factor, at + (to - at) * factor);
}
function panAddresses(bytes) { const [from, to] = painter.map; if (state.addresses) viewAddresses(from + bytes, to + bytes); }

// Of the axis, in microseconds.
function extent() { const p = state.program; return state.actual && p.actual ? Math.max(p.duration, p.actual.duration) : p.duration; }

function toPeak() {
  let index = plan.peak_program;
  if (index >= 0 && plan.programs[index] !== state.program) show(index);
  const e = state.program.peak_event;
  if (e < 0) return;
  letTabGo(); // the peak is asked of memory, whatever tab was chosen
  select({ event: e }, true, true);
  say("Peak, " + details.sentence({ event: e }));
}

function toggleActual() {
  if (plan.actual_us === undefined) return;
  state.actual = !state.actual;
  $("actual").setAttribute("aria-pressed", String(state.actual));
  whole();
  arrange();
  say(state.actual ? "times of the run are shown" : "times of the run are hidden");
}

function toggleCritical() {
  state.critical = !state.critical;
  $("critical").setAttribute("aria-pressed", String(state.critical));
  legend();
  request();
  say(state.critical ? "events with slack are dimmed" : "all events are in full colour");
}

function copyLink() {
  if (navigator.clipboard) navigator.clipboard.writeText(link.address).catch(() => {});
  history.replaceState(null, "", link.address);
  say("the page's address is that of what is seen: " + link.address);
  $("link").textContent = "Link copied";
  setTimeout(() => { $("link").textContent = "Link"; }, 1500);
}

// ── pointer ──
function clicked(hit, x) {
  if (hit.event !== undefined) select({ event: hit.event });
  else if (hit.held !== undefined) select({ event: hit.held });
  else if (hit.storage !== undefined) { // of several at one place: the next of them
    const at = state.selection ? hit.storages.indexOf(state.selection.storage) : -1;
    select({ storage: hit.storages[(at + 1) % hit.storages.length] });
  }
  else if (hit.span !== undefined) select({ module: hit.row.members[hit.row.spans.member[hit.span]].path });
  else if (hit.memory) select({ event: state.program.memory(state.arena).at[state.program.momentAt(painter.time(x))] }, false, true);
  else if (hit.stream !== undefined) select(null);
}
// What a double click zooms to.
function targetOf(hit) {
  if (hit.event !== undefined || hit.held !== undefined) return { event: hit.event ?? hit.held };
  if (hit.storage !== undefined) return state.selection && hit.storages.includes(state.selection.storage) ? state.selection : { storage: hit.storage };
  return hit.span !== undefined ? { span: [hit.row.spans.from[hit.span], hit.row.spans.to[hit.span]] } : null;
}
function left() { live(); }

function hover(x, y, event) {
  const hit = painter.hit(x, y), p = state.program, t = painter.time(x), inside = x >= LEFT && t >= 0 && t <= p.duration;
  state.hover = hit.event !== undefined || hit.storage !== undefined ? hit : null;
  state.cursor = inside ? t : null;
  let text = "";
  if (hit.event !== undefined) text = details.sentence(hit);
  else if (hit.storage !== undefined) text = details.sentence(hit) + (hit.storages.length > 1 ? "\n" + (hit.storages.length - 1) + " more at this pixel: click again" : "");
  else if (hit.held !== undefined) text = p.heldText(hit.held);
  else if (hit.span !== undefined) text = hit.row.members[hit.row.spans.member[hit.span]].path + "\n" + plan.phases[hit.row.spans.phase[hit.span]] + ", " + timeText(hit.row.spans.to[hit.span] - hit.row.spans.from[hit.span]) + "\nclick: what it adds up to";
  else if (hit.memory && inside && p.leading) {
    const m = p.memory(state.arena), e = m.at[p.momentAt(t)];
    text = bytesText(m.total[e]) + " alive at " + p.id(e) + plan.classes.map((name, c) => [m.of[e * plan.classes.length + c], name]).filter(v => v[0]).sort((a, b) => b[0] - a[0]).map(v => "\n" + bytesText(v[0]) + "  " + v[1]).join("");
  }
  tip(text, event);
  request();
  live();
}

// ── keyboard ──
function step(by) { // to the event before or after, on the selection's stream
  const p = state.program;
  if (!p.leading) return;
  const e = state.selection && state.selection.event;
  if (e === undefined || e === null) {
    const k = Math.min(p.leading.order.length - 1, above(p.leading.ends, Math.max(0, state.t0)));
    return select({ event: p.leading.order[k] }, true);
  }
  const s = p.streams.find(s => s.stream === p.stream[e]), next = s.order[s.order.indexOf(e) + by];
  if (next !== undefined) select({ event: next }, true);
}
function otherStream(by) { // to the event nearest in time on a stream above or below
  const p = state.program, e = state.selection && state.selection.event;
  if (e === undefined || e === null) return step(1);
  const k = p.streams.findIndex(s => s.stream === p.stream[e]), middle = (p.start[e] + p.end[e]) / 2;
  const rows = by < 0 ? p.streams.slice(0, k).reverse() : p.streams.slice(k + 1), near = rows.map(s => painter.nearest(s, middle, Infinity));
  const away = x => Math.max(p.start[x] - middle, middle - p.end[x], 0); // the nearest stream of those that are nearest in time
  if (near.length) select({ event: near.reduce((a, b) => away(b) < away(a) ? b : a) }, true);
}

// ── search ──
const MOST_FOUND = 200;
function search() {
  const query = $("search").value, p = state.program, found = find(p, query, MOST_FOUND, state.arena, liveEvent()[0]), list = $("results");
  $("found").hidden = !query.trim();
  $("found-title").textContent = found.total + " found" + (query.trim() && !found.total ? ": " + nothingFound(p, query, state.arena, liveEvent()[0]) : "") + (found.total > found.events.length + found.storages.length ? ", some of them here" : "") + (found.us > 0 ? "; its events take " + timeText(found.us) : "");
  $("found-title").dataset.us = found.us;
  const item = (selection, text) => make("li", { role: "option", tabindex: "-1", "aria-selected": "false", title: text, click: () => choose(selection) , focus: event => mark(event.target) }, named(text));
  list.replaceChildren(
    ...found.events.map(e => item({ event: e }, p.id(e) + "  " + plan.phases[p.phase[e]] + "  " + details.painter.eventLabel(e))),
    ...found.storages.map(i => item({ storage: i }, plan.storages[i].name + "  " + plan.classes[plan.storages[i].cls] + "  " + bytesText(plan.storages[i].size))));
  list.hidden = !list.firstElementChild;
  if (!list.hidden) list.firstElementChild.tabIndex = 0;
  link.changed();
  if (query.trim()) say(found.total ? found.total + " found" : $("found-title").textContent);
  reveal(query.trim() ? "found" : state.selection ? "selection" : "");
}
function mark(item) { // the one that Tab goes to
  for (const li of $("results").children) {
    li.setAttribute("aria-selected", String(li === item));
    li.tabIndex = li === item ? 0 : -1;
  }
}
function choose(selection) {
  select(selection, true);
}
function searching() {
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", event => {
    const first = $("results").firstElementChild;
    if (event.key === "ArrowDown" && first) { event.preventDefault(); first.focus(); }
    if (event.key === "Enter" && first) { first.click(); mark(first); }
    if (event.key === "Escape") { $("search").value = ""; search(); $("canvas").focus(); }
  });
  $("results").addEventListener("keydown", event => {
    const li = event.target, to = event.key === "ArrowDown" ? li.nextElementSibling : event.key === "ArrowUp" ? li.previousElementSibling || $("search") : null;
    if (to) to.focus();
    else if (event.key === "Enter" || event.key === " ") li.click();
    else if (event.key === "Escape") $("canvas").focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

// ── what is seen, as an address ──
function seenNow() {
  const p = state.program, s = state.selection || {}, two = ([a, z]) => [a, z].map(x => Number(x.toFixed(3))).join("-");
  return { p: p.name, t: two([state.t0, state.t1]), a: state.arena ? plan.arenas[state.arena] : "", z: state.addresses ? two(state.addresses) : "", e: s.event !== undefined ? p.id(s.event) : "", s: s.storage !== undefined ? plan.storages[s.storage].name : "",
    m: s.module, r: s.range && two(s.range), tab: tabbed.stays ? tabbed.shown.replace("tab-", "") : "", c: state.critical ? "1" : "" };
}
// What a link does not name stays as it is; a name that this plan has not is left out, and said.
function showLink({ p, t, a, z, e, s, m, r, tab, c }) {
  const index = plan.programs.findIndex(g => g.name === p), missing = [];
  if (p !== undefined && index < 0) missing.push(p);
  if (index >= 0 && plan.programs[index] !== state.program) show(index);
  if (a && a !== plan.arenas[state.arena] && plan.arenas.includes(a)) showArena(plan.arenas.indexOf(a));
  if (Boolean(c) !== state.critical) toggleCritical();
  const g = state.program, event = e ? g.eventNamed(e) : -1, storage = s ? g.storages.find(x => x.name === s) : null, range = linkRange(r), seen = linkRange(t);
  if (e && event < 0) missing.push(e);
  if (s && !storage) missing.push(s);
  select(event >= 0 ? { event } : storage ? { storage: storage.index } : range ? { range } : m !== undefined ? { module: m } : null, !seen);
  if (tab && $("tab-" + tab + "-tab")) showTab("tab-" + tab, true);
  if (seen) view(...seen);
  const addresses = linkRange(z);
  if (addresses) viewAddresses(...addresses);
  if (missing.length) say("this plan has no " + missing.join(", "));
}

function relabel() { if (state.program) { legend(); panels(); } }

function showArena(arena) {
  state.arena = arena;
  state.addresses = null;
  $("arena").value = arena;
  summed = null;
  arrange();
  legend();
  panels();
}

// A storage is zoomed to in its addresses, too.
function zoomToStorage() {
  zoomToSelection();
  const s = state.selection && state.selection.storage !== undefined && plan.storages[state.selection.storage];
  if (s && s.arena === state.arena) viewAddresses(s.offset - s.size * .4, s.offset + s.size * 1.4);
}
function wholeMap() {
  whole();
  viewAddresses(0, Infinity);
}

let link = { changed() {} };
function start() {
  tabs("tab-memory");
  mapUnder = (y, zoomed) => y + painter.top >= painter.addressesAt && (!zoomed || state.addresses) ? { zoom: zoomAddresses, pan: panAddresses } : null;
  selectRange = (a, b) => { if (b > a) select({ range: [a, b] }); };
  timelines();
  head();
  pointers();
  timelineKeys({ ArrowUp: () => otherStream(-1), ArrowDown: () => otherStream(1), ",": () => step(-1), ".": () => step(1), p: toPeak, c: toggleCritical, f: zoomToStorage, 0: wholeMap, v: () => selectRange(Math.max(state.t0, 0), Math.min(state.t1, extent())), r: toggleActual, Escape: () => select(null) });
  searching();
  $("to-all").addEventListener("click", wholeMap);
  $("program").addEventListener("change", event => show(Number(event.target.value)));
  $("arena").addEventListener("change", event => showArena(Number(event.target.value)));
  $("to-peak").addEventListener("click", toPeak);
  $("critical").addEventListener("click", toggleCritical);
  $("fold").addEventListener("click", foldAll);
  $("actual").hidden = !state.actual;
  $("actual").addEventListener("click", toggleActual);
  if (plan.shown >= 0) {
    show(plan.shown);
    paint();
    new ResizeObserver(arrange).observe($("scroll"));
    const linked = () => { // its selection reads what stands behind this script
      link = new Link(seenNow, showLink);
      painter.drawn = () => link.changed();
      panels(); // and so do lines of Lua
    };
    document.readyState === "loading" ? addEventListener("DOMContentLoaded", linked, { once: true }) : linked();
    $("link").addEventListener("click", copyLink);
  }
  timing.first = performance.now();
  timing.script = timing.first - began;
}

start();
window.shardc = { state, painter, timing, select, view, show }; // for the tests and the curious
