// ── toolkit.js: what the scripts of all pages share: elements, drawing, pointer and keys, light and dark, figures. ──────────────
// Names from a plan or a log only ever become text. The page's own script has: drawAll(); state.cursor; seen(), the [from, to] of its axis that is
// seen; whole(), pan(by), zoom(factor, at); arrange(), which lays everything out anew; recoloured().

const $ = id => document.getElementById(id);

// make("td", { class: "number" }, "12", element, ...): strings become text nodes.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {}))
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== false && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  element.append(...children.filter(c => c !== null && c !== undefined && c !== false));
  return element;
}
function named(text, title) { return make("span", { class: "name", title }, text); }
function say(text) { $("said").textContent = text; }

// ── drawing, at most once a frame ──
const timing = { frames: [] }; // for the tests: milliseconds of the first paint and of each frame
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
  drawAll();
  timing.frames.push(performance.now() - from);
  if (timing.frames.length > 1000) timing.frames.shift();
}

// The least of 1, 2 or 5 times a power of ten that is no less.
function tickStep(least) {
  const step = 10 ** Math.floor(Math.log10(least));
  return step * ([1, 2, 5, 10].find(f => step * f >= least * .999) || 10);
}

// ── pointer ──
// What is under the pointer, as text beside it and left of an edge; "": nothing.
function showTip(text, event, edge) {
  const tip = $("tip");
  tip.hidden = !text;
  tip.textContent = text;
  if (!text) return;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, edge - tip.offsetWidth - 6)) + "px";
  tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - 10 - tip.offsetHeight : event.clientY + 18) + "px";
}
// A turn of the wheel, in pixels. As in Perfetto: ctrl zooms, by a factor, and shift pans.
function turnOf(event) {
  const line = event.deltaMode ? 30 : 1, dy = event.deltaY * line;
  return { zooms: event.ctrlKey || event.metaKey, factor: Math.exp(Math.max(-200, Math.min(200, dy)) * .004), dx: (event.shiftKey ? event.deltaX || event.deltaY : event.deltaX) * line, dy };
}

// ── keyboard: the keys of every axis, and the page's own ──
function keys(own) {
  const middle = () => state.cursor !== null ? state.cursor : (seen()[0] + seen()[1]) / 2, part = by => (seen()[1] - seen()[0]) * by;
  const nearer = () => zoom(1 / 1.25, middle()), further = () => zoom(1.25, middle()), before = () => pan(-part(.12)), after = () => pan(part(.12));
  const actions = { w: nearer, "+": nearer, s: further, "-": further, a: before, ArrowLeft: before, d: after, ArrowRight: after, 0: whole, "?": openHelp, ...own };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const target = event.target, typing = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName), arrow = event.key.startsWith("Arrow");
    if (typing || (arrow && target.tagName !== "CANVAS" && target !== document.body)) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    $("tip").hidden = true; // it is of what was under the pointer before
    action();
  });
}

// The dialog opens at its top, with the focus on itself, so that arrows scroll it: its button stands at its end.
function openHelp() {
  $("help").showModal();
  $("help").tabIndex = -1;
  $("help").focus();
  $("help").scrollTop = 0;
}

// ── light and dark ──
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  recoloured();
  request();
}
// A function from the name of a colour to what it is now.
function colours() {
  const style = getComputedStyle(document.documentElement);
  return name => style.getPropertyValue("--" + name).trim();
}

// The theme of the system, until the button changes it; the dialog of keys; the paper, which is light. paper(): what else it asks for.
function viewing(paper) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  $("help-open").addEventListener("click", openHelp);
  $("help-close").addEventListener("click", () => $("help").close());
  let before = "";
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    printing = true;
    theme("light");
    paper();
    paint();
  });
  addEventListener("afterprint", () => { printing = false; theme(before); arrange(); });
}

// ── figures as people read them ──
function grouped(x) { return Math.round(x).toLocaleString("en-US"); }
function bytesText(x) {
  for (const [one, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (Math.abs(x) >= 0.9995 * one) return (x / one).toFixed(1) + " " + name;
  return x.toFixed(0) + " B";
}
