// ── elements.js: elements of a page. Names from a plan only ever become text. ───────────────────────────────────────────────

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

function named(text) { return make("span", { class: "name" }, text); }
// [name, value, the policy file that overrides it]
function optionOf([name, value, by]) { return by ? make("del", { title: by + " overrides it" }, name + "=" + value) : name + "=" + value; }
function bytesOf(x) { return make("span", { "data-bytes": x, title: grouped(x) + " B" }, bytesText(x)); }
function swatch(colour) {
  const s = make("span", { class: "swatch", "aria-hidden": "true" });
  s.style.background = colour;
  return s;
}
function facts(pairs) {
  return make("dl", { class: "facts" }, ...pairs.filter(Boolean).flatMap(([k, ...v]) => [make("dt", {}, k), make("dd", { "data-fact": k }, ...v)]));
}
