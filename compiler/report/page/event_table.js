// ── event_table.js: tables of events that sort by their columns. ─────────────────────────────────────────────────────────────────
// Events of equal layers are one row, which names the largest of them and opens to all, as in differences of plans. A column is a title, a value of such events to sort by
// (the largest first), and what a cell shows of it. A new one is a line in a list below.

function sumOf(events, value) { return events.reduce((sum, e) => sum + value(e), 0); }
function limited(p, events) { return events.filter(e => p.limit[e] > 0 && p.took[e] > 0); } // those whose limit is known
const COLUMNS = {
  time: { title: "time", value: (p, es) => sumOf(es, e => p.took[e]), text: timeText },
  exposed: { title: "exposed", value: (p, es) => sumOf(es, e => p.exposedOf(e)), text: x => x > 0 ? timeText(x) : "" },
  lost: { title: "over the limit", value: (p, es) => (of => of.length ? sumOf(of, e => p.took[e] - p.limit[e]) : -Infinity)(limited(p, es)), text: x => x > -Infinity ? timeText(Math.max(0, x)) : "" },
  share: { title: "of the limit", value: (p, es) => (of => of.length ? -sumOf(of, e => p.limit[e]) / sumOf(of, e => p.took[e]) : -Infinity)(limited(p, es)), text: x => x > -Infinity ? percent(-x) : "" },
  slack: { title: "least slack", value: (p, es) => es.reduce((least, e) => Math.min(least, p.slack[e]), Infinity), text: x => x > 0 ? timeText(x) : "none" },
  bytes: { title: "bytes", value: (p, es) => sumOf(es, e => p.moved[e]), text: bytesText },
  rate: { title: "rate", value: (p, es) => (us => us > 0 ? sumOf(es, e => p.moved[e]) / us * 1e6 : 0)(sumOf(es, e => p.took[e])), text: x => x > 0 ? amountText(x, "B/s") : "" },
};
const EVENT_TABLES = [
  { key: "events", title: "Events", of: () => true, columns: ["time", "exposed", "lost", "share", "slack"] },
  { key: "collectives", title: "Collectives and copies", of: (p, e) => p.kind[e] >= COLLECTIVE, columns: ["time", "exposed", "bytes", "rate", "share"],
    note: (p, e) => (p.comm[e] < 0 ? "" : p.plan.comms[p.comm[e]][0] + ", " + p.plan.comms[p.comm[e]][1] + " ranks, ") + "over " + p.plan.routes[p.over[e]] },
];
const FIRST_ROWS = 12, MORE_ROWS = 100; // a row opens to MORE_ROWS events at most

function percent(share) { return (100 * share).toFixed(share < .0995 ? 1 : 0) + " %"; }

// [[events]] of one op, phase, stream and group of ranks whose modules' paths differ in numbers alone.
function alikeEvents(p, events) {
  const of = new Map();
  for (const e of events) {
    const key = [p.op[e], p.phase[e], p.stream[e], p.comm[e], p.over[e], pathPattern(p.text(e, MODULE))].join(" ");
    of.has(key) ? of.get(key).push(e) : of.set(key, [e]);
  }
  return [...of.values()];
}

// sorts: of each table the column that it is sorted by, kept from scope to scope. link(e): an element that selects the event.
function eventTable(table, p, events, sorts, link) {
  const rows = alikeEvents(p, events.filter(e => table.of(p, e)));
  if (!rows.length) return [];
  const whole = make("div", { "data-events": table.key }), opened = new Set(); // the first events of rows that are open
  const draw = (most, focused) => {
    const by = COLUMNS[sorts[table.key] ||= table.columns[0]];
    const largest = (list, events) => list.map(x => [by.value(p, events(x)), x]).sort((a, b) => b[0] - a[0] || events(a[1])[0] - events(b[1])[0]).map(x => x[1]);
    const head = name => make("th", { scope: "col", class: "number", "aria-sort": name === sorts[table.key] ? "descending" : false },
      make("button", { type: "button", class: "sort", "data-column": name, click: () => { sorts[table.key] = name; draw(most, "[data-column=" + name + "]"); } }, COLUMNS[name].title + (name === sorts[table.key] ? " ▾" : "")));
    const cells = list => make("tr", { class: "more" }, ...table.columns.map(c => make("td", { class: "number", "data-cell": c }, COLUMNS[c].text(COLUMNS[c].value(p, list)))));
    const heading = (attributes, e, module, ...before) => make("tr", attributes, make("td", { colspan: table.columns.length }, // names are long: figures stand below them
      ...before, " ", named(p.text(e, OP)), " ", make("span", { class: "dim" }, named(module), table.note ? " " + table.note(p, e) : "")));
    const single = e => several(heading({ "data-event": p.id(e) }, e, p.text(e, MODULE), link(e)), cells([e]));
    const folded = list => {
      const first = list[0], open = opened.has(first), sorted = largest(list, e => [e]);
      const toggle = make("button", { type: "button", class: "link", "aria-expanded": String(open), "data-fold": p.id(first), click: () => { open ? opened.delete(first) : opened.add(first); draw(most, "[data-fold=" + p.id(first) + "]"); } }, (open ? "▾ " : "▸ ") + grouped(list.length));
      return several(heading({ "data-alike": list.length, "data-first": p.id(first) }, first, pathPattern(p.text(first, MODULE)), toggle, " like ", link(sorted[0])), cells(list),
        ...(open ? sorted.slice(0, MORE_ROWS).map(single) : []),
        ...(open && list.length > MORE_ROWS ? [make("tr", { class: "more" }, make("td", { colspan: table.columns.length, class: "dim" }, "and " + grouped(list.length - MORE_ROWS) + " more of them"))] : []));
    };
    const sorted = largest(rows, list => list);
    whole.replaceChildren(make("table", { class: "sums" }, make("caption", {}, table.title),
      make("thead", {}, make("tr", {}, ...table.columns.map(head))),
      make("tbody", {}, ...sorted.slice(0, most).map(list => list.length > 1 ? folded(list) : single(list[0])))));
    if (sorted.length > most) whole.append(make("button", { type: "button", class: "link", click: () => draw(most + MORE_ROWS) }, Math.min(MORE_ROWS, sorted.length - most) + " more of " + grouped(sorted.length)));
    const button = focused && whole.querySelector(focused);
    if (button) button.focus();
  };
  draw(FIRST_ROWS);
  return [whole];
}
