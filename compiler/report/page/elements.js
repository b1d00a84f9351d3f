// ── elements.js: elements of a page. Names from a plan only ever become text. ───────────────────────────────────────────────

// [name, value, the policy file that overrides it]
function optionOf([name, value, by]) { return by ? make("del", { title: by + " overrides it" }, name + "=" + value) : name + "=" + value; }
function bytesOf(x) { return make("span", { "data-bytes": x, title: grouped(x) + " B" }, bytesText(x)); }
function swatch(colour) {
  const s = make("span", { class: "swatch", "aria-hidden": "true" });
  s.style.background = colour;
  return s;
}
function several(...elements) {
  const all = document.createDocumentFragment();
  all.append(...elements);
  return all;
}
// A table whose first rows are shown, and a button that shows all; of the columns all but the first are numbers.
function longTable(attributes, columns, rows, most, title) {
  const body = make("tbody", {}, ...rows.slice(0, most)), rest = rows.slice(most);
  return [make("table", attributes, title && make("caption", {}, title),
    make("thead", {}, make("tr", {}, ...columns.map((t, i) => make("th", { scope: "col", class: i ? "number" : false }, t)))), body),
    rest.length > 0 && make("button", { type: "button", class: "link", click: event => { body.append(...rest); event.target.remove(); } }, "all " + rows.length + " rows")].filter(Boolean);
}
function facts(pairs) {
  return make("dl", { class: "facts" }, ...pairs.filter(Boolean).flatMap(([k, ...v]) => [make("dt", {}, k), make("dd", { "data-fact": k }, ...v)]));
}
