// ── elements.js: elements of a page. Names from a plan only ever become text. ───────────────────────────────────────────────

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
