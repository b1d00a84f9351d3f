// ── view.js: the range of time that is seen, and what pointer, keyboard, theme and printer do with it; over toolkit.js. ──────────
// The page's own script has: state (t0, t1, cursor, hover, range), painter, extent(), the axis in microseconds, arrange(), which
// lays the rows out anew, relabel(), of new colours, spanOf(selection), select(selection), targetOf(hit), a selection or null, and what a pointer does: clicked(hit, x),
// hover(x, y, event), left().

// { zoom(factor, y), pan(bytes) } of a map of addresses at y of the canvas, where a page has one that zooms; zoomed: one that is.
let mapUnder = () => null;
let selectRange = null; // what a drag along the ruler does, where a page has something for it

function drawAll() { painter.draw(printing ? 0 : $("scroll").scrollTop); }
function seen() { return [state.t0, state.t1]; }

// ── the view ──
function view(t0, t1) {
  const all = extent(), wide = Math.min(Math.max(t1 - t0, 1e-3), all * 1.3), middle = (t0 + t1) / 2;
  const centre = Math.min(Math.max(middle, 0), all);
  state.t0 = centre - wide / 2;
  state.t1 = centre + wide / 2;
  request();
}
function whole() { const d = extent(); view(-d * .01, d * 1.02); }
function pan(dt) { view(state.t0 + dt, state.t1 + dt); }
function zoom(factor, t) { view(t - (t - state.t0) * factor, t + (state.t1 - t) * factor); }
function zoomToSpan(from, to) {
  const room = Math.max(to - from, 1e-3) * .4;
  view(from - room, to + room);
}
function zoomToSelection() { if (state.selection) zoomToSpan(...spanOf(state.selection)); }

// What lies at a time beyond the view is moved into it; what is too narrow to be seen is zoomed to, where that is wanted.
function bringSpan(from, to, zoomed) {
  if (to < state.t0 || from > state.t1) pan((from + to) / 2 - (state.t0 + state.t1) / 2);
  if (zoomed && (to - from) * painter.scale < 4)
    view((from + to) / 2 - Math.max(to - from, 1e-3) * 30, (from + to) / 2 + Math.max(to - from, 1e-3) * 30);
  else if (zoomed && (from < state.t0 || to > state.t1)) pan((from + to) / 2 - (state.t0 + state.t1) / 2);
}
// A narrow window scrolls as a whole.
function narrow() { return getComputedStyle($("scroll")).overflowY === "visible"; }
// The stage is scrolled so that what lies between y and y + h is seen.
function bringRow(y, h) {
  const box = $("scroll");
  if (narrow()) {
    const top = $("stage").getBoundingClientRect().top + y, sheet = document.querySelector("aside.sheet"), seen = innerHeight - (sheet ? sheet.offsetHeight : 0);
    if (top < 0 || top + h > seen) scrollBy(0, top + h / 2 - seen / 2);
  } else if (y < box.scrollTop || y + h > box.scrollTop + box.clientHeight) box.scrollTop = y;
}

// The panel that is to be seen first is the one whose tab is open, or stands before the others, and is scrolled to; in a narrow window it comes up as
// a sheet from below. first: its id; "" closes the sheet.
function reveal(first) {
  const aside = document.querySelector("aside"), panel = first && $(first);
  aside.classList.toggle("sheet", panel !== "");
  if (!panel) return;
  const tab = panel.closest(".tab");
  if (tab) showTab(tab.id);
  else if (panel.id !== "found") $("sheet-close").after(panel);
  aside.scrollTop = 0;
  const box = aside.getBoundingClientRect(), top = panel.getBoundingClientRect().top - box.top;
  if (top > box.height * .6) aside.scrollTop = top; // what was found leaves it too little room
}

// ── pointer ──
function pointers() {
  const canvas = $("canvas"), scroll = $("scroll");
  const at = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  let drag = null;
  canvas.addEventListener("pointerdown", event => {
    if (event.button) return;
    const [x, y] = at(event);
    drag = { x, y, t0: state.t0, t1: state.t1, top: scroll.scrollTop, moved: false, range: event.shiftKey, ruler: y < RULER, last: y, map: mapUnder(y, true) };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const [x, y] = at(event);
    if (!drag) return hover(x, y, event);
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    $("tip").hidden = true;
    if (drag.range || drag.ruler) state.range = [drag.x, x];
    else {
      const dt = (drag.x - x) / painter.scale;
      view(drag.t0 + dt, drag.t1 + dt);
      if (drag.map) drag.map.pan((drag.last - y) / painter.mapScale);
      else scroll.scrollTop = drag.top + drag.y - y;
      drag.last = y;
    }
    request();
  });
  canvas.addEventListener("pointerup", event => {
    if (!drag) return;
    const [x, y] = at(event), done = drag;
    drag = null;
    if (state.range) {
      const [a, b] = state.range.map(px => painter.time(px)).sort((p, q) => p - q);
      state.range = null;
      return done.range || !selectRange ? view(a, b) : selectRange(Math.max(a, 0), Math.min(b, extent()));
    }
    if (done.moved) return;
    clicked(painter.hit(x, y), x);
    if (narrow()) bringRow(y + painter.top - 20, 40); // not below the sheet
  });
  canvas.addEventListener("pointercancel", () => { drag = null; state.range = null; });
  canvas.addEventListener("pointerleave", () => { state.hover = state.cursor = null; $("tip").hidden = true; request(); left(); });
  canvas.addEventListener("dblclick", event => { // the first click has selected what is there
    const hit = painter.hit(...at(event)), target = targetOf(hit);
    if (target) zoomToSpan(...spanOf(target));
    else if (!hit.memory) whole();
  });
  // Plain scrolls; where nothing can be scrolled, it zooms too.
  scroll.addEventListener("wheel", event => {
    const [x, y] = at(event), { zooms, factor, dx, dy } = turnOf(event), map = mapUnder(y);
    if (event.altKey && map) {
      event.preventDefault();
      return map.zoom(factor, y + painter.top);
    }
    if (zooms || (!event.shiftKey && !narrow() && scroll.scrollHeight <= scroll.clientHeight + 1 && Math.abs(dy) > Math.abs(dx))) zoom(factor, painter.time(Math.max(x, LEFT)));
    else if (dx) pan(dx / painter.scale);
    else return;
    event.preventDefault();
  }, { passive: false });
  scroll.addEventListener("scroll", request);
}

// A tip is not over the panels.
function tip(text, event) { showTip(text, event, $("scroll").getBoundingClientRect().right); }

// The keys of every timeline, and the page's own.
function timelineKeys(own) { keys({ f: zoomToSelection, "/": () => $("search").focus(), ...own }); }

function recoloured() {
  painter.readColours();
  relabel();
}

function timelines() {
  viewing(() => {
    document.documentElement.style.setProperty("--print-zoom", Math.min(1, 720 / $("scroll").clientWidth));
    arrange();
  });
  $("to-all").addEventListener("click", whole);
  $("sheet-close").addEventListener("click", () => select(null));
}

// The stage is as tall as its rows; the canvas covers what is visible of it.
function sizeStage() {
  $("stage").style.height = painter.height + "px";
  painter.resize($("scroll").clientWidth, Math.max(100, printing ? painter.height : Math.min($("scroll").clientHeight, painter.height)));
}

// at(element, y, h): puts a label beside its row.
function placer(rows) {
  return (element, y, h) => {
    element.style.top = y + "px";
    element.style.height = h + "px";
    element.style.lineHeight = element.className === "note" ? "" : h + "px";
    rows.push(element);
  };
}
function bytesLabels(at, y, { top, marks }) {
  for (const bytes of marks) {
    const note = make("div", { class: "note" }, bytesText(bytes).replace(".0 ", " "));
    note.style.textAlign = "end";
    at(note, y + MEMORY * (1 - bytes / top) - 8, 16);
  }
}
