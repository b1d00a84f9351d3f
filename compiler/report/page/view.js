// ── view.js: the range of time that is seen, and what pointer, keyboard, theme and printer do with it. ───────────────────────
// The page's own script has: state (t0, t1, cursor, hover, range), painter, timing, extent(), the axis in microseconds, arrange(), which
// lays the rows out anew, recoloured(), spanOf(selection), select(selection), targetOf(hit), a selection or null, and what a pointer does: clicked(hit, x),
// hover(x, y, event), left().

// ── drawing, at most once a frame ──
let asked = false, printing = false;
function request() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    paint();
  });
}
function paint() {
  const from = performance.now();
  painter.draw(printing ? 0 : $("scroll").scrollTop);
  timing.frames.push(performance.now() - from);
  if (timing.frames.length > 1000) timing.frames.shift();
}
function say(text) { $("said").textContent = text; }

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

// The panel that is to be seen first, of those that `first` names, stands before the others and is scrolled to; in a narrow window it comes up as a
// sheet from below. first: "" closes the sheet.
function reveal(first) {
  const aside = document.querySelector("aside"), panel = first && $(first), found = $("found");
  aside.classList.toggle("sheet", panel !== "");
  if (!panel) return;
  if (panel.id !== "found") found ? found.after(panel) : $("sheet-close").after(panel);
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
    drag = { x, y, t0: state.t0, t1: state.t1, top: scroll.scrollTop, moved: false, range: event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const [x, y] = at(event);
    if (!drag) return hover(x, y, event);
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    $("tip").hidden = true;
    if (drag.range) state.range = [drag.x, x];
    else {
      const dt = (drag.x - x) / painter.scale;
      view(drag.t0 + dt, drag.t1 + dt);
      scroll.scrollTop = drag.top + drag.y - y;
    }
    request();
  });
  canvas.addEventListener("pointerup", event => {
    if (!drag) return;
    const [x, y] = at(event), done = drag;
    drag = null;
    if (done.range && state.range) {
      const [a, b] = state.range.map(px => painter.time(px)).sort((p, q) => p - q);
      state.range = null;
      return view(a, b);
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
  // As in Perfetto: ctrl zooms, shift pans, plain scrolls; where nothing can be scrolled, plain zooms too.
  scroll.addEventListener("wheel", event => {
    const [x] = at(event), turn = event.deltaMode ? 30 : 1, dx = (event.shiftKey ? event.deltaX || event.deltaY : event.deltaX) * turn, dy = event.deltaY * turn;
    const zooms = event.ctrlKey || event.metaKey || (!event.shiftKey && !narrow() && scroll.scrollHeight <= scroll.clientHeight + 1 && Math.abs(dy) > Math.abs(dx));
    if (zooms) zoom(Math.exp(Math.max(-200, Math.min(200, dy)) * .004), painter.time(Math.max(x, LEFT)));
    else if (dx) pan(dx / painter.scale);
    else return;
    event.preventDefault();
  }, { passive: false });
  scroll.addEventListener("scroll", request);
}

// What is under the pointer, as text beside it; "": nothing.
function showTip(text, event) {
  const tip = $("tip");
  tip.hidden = !text;
  tip.textContent = text;
  if (!text) return;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, $("scroll").getBoundingClientRect().right - tip.offsetWidth - 6)) + "px"; // not over the panels
  tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - 10 - tip.offsetHeight : event.clientY + 18) + "px";
}

// ── keyboard: those of every timeline, and the page's own ──
function keys(own) {
  const middle = () => state.cursor !== null ? state.cursor : (state.t0 + state.t1) / 2, part = by => (state.t1 - state.t0) * by;
  const actions = {
    w: () => zoom(1 / 1.25, middle()), s: () => zoom(1.25, middle()), a: () => pan(-part(.12)), d: () => pan(part(.12)),
    ArrowLeft: () => pan(-part(.12)), ArrowRight: () => pan(part(.12)), "+": () => zoom(1 / 1.25, middle()), "-": () => zoom(1.25, middle()),
    f: zoomToSelection, 0: whole, "/": () => $("search").focus(), "?": () => $("help").showModal(), ...own,
  };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const target = event.target, typing = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName), arrow = event.key.startsWith("Arrow");
    if (typing || (arrow && target !== $("canvas") && target !== document.body)) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    $("tip").hidden = true; // it is of what was under the pointer before
    action();
  });
}

// ── light and dark ──
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  painter.readColours();
  recoloured();
  request();
}

// The theme of the system, until the button changes it; the dialog of keys; the paper, which is light.
function viewing() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  $("to-all").addEventListener("click", whole);
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  $("sheet-close").addEventListener("click", () => select(null));
  let before = "";
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    printing = true;
    theme("light");
    document.documentElement.style.setProperty("--print-zoom", Math.min(1, 720 / $("scroll").clientWidth));
    arrange();
    paint();
  });
  addEventListener("afterprint", () => { printing = false; theme(before); arrange(); });
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
