// ── event_table.js: tables of events that sort by their columns. ─────────────────────────────────────────────────────────────────
// A column is a title, a value to sort by (the largest first), and what a cell shows. A new one is a line in a list below.

const COLUMNS = {
  time: { title: "time", value: (p, e) => p.took[e], text: (p, e) => timeText(p.took[e]) },
  exposed: { title: "exposed", value: (p, e) => p.exposedOf(e), text: (p, e) => p.exposedOf(e) > 0 ? timeText(p.exposedOf(e)) : "" },
  lost: { title: "over the limit", value: (p, e) => p.limit[e] > 0 ? p.took[e] - p.limit[e] : -1, text: (p, e) => p.limit[e] > 0 ? timeText(Math.max(0, p.took[e] - p.limit[e])) : "" },
  share: { title: "of the limit", value: (p, e) => p.limit[e] > 0 && p.took[e] > 0 ? -p.limit[e] / p.took[e] : -Infinity, text: (p, e) => p.limit[e] > 0 && p.took[e] > 0 ? percent(p.limit[e] / p.took[e]) : "" },
  slack: { title: "slack", value: (p, e) => p.slack[e], text: (p, e) => p.slack[e] > 0 ? timeText(p.slack[e]) : "none" },
  bytes: { title: "bytes", value: (p, e) => p.moved[e], text: (p, e) => bytesText(p.moved[e]) },
  rate: { title: "rate", value: (p, e) => p.took[e] > 0 ? p.moved[e] / p.took[e] : 0, text: (p, e) => p.took[e] > 0 ? amountText(p.moved[e] / p.took[e] * 1e6, "B/s") : "" },
};
const EVENT_TABLES = [
  { key: "events", title: "Events", of: () => true, columns: ["time", "exposed", "lost", "share", "slack"] },
  { key: "collectives", title: "Collectives and copies", of: (p, e) => p.kind[e] >= COLLECTIVE, columns: ["time", "exposed", "bytes", "rate", "share"],
    note: (p, e) => (p.comm[e] < 0 ? "" : p.plan.comms[p.comm[e]][0] + ", " + p.plan.comms[p.comm[e]][1] + " ranks, ") + "over " + p.plan.routes[p.over[e]] },
];
const FIRST_ROWS = 12, MORE_ROWS = 100;

function percent(share) { return (100 * share).toFixed(share < .0995 ? 1 : 0) + " %"; }

// sorts: of each table the column that it is sorted by, kept from scope to scope. link(e): an element that selects the event.
function eventTable(table, p, events, sorts, link) {
  const mine = events.filter(e => table.of(p, e));
  if (!mine.length) return [];
  const whole = make("div", { "data-events": table.key });
  const draw = (most, focused) => {
    const by = COLUMNS[sorts[table.key] ||= table.columns[0]], sorted = mine.slice().sort((a, b) => by.value(p, b) - by.value(p, a) || a - b);
    const head = name => make("th", { scope: "col", class: "number", "aria-sort": name === sorts[table.key] ? "descending" : false },
      make("button", { type: "button", class: "sort", "data-column": name, click: () => { sorts[table.key] = name; draw(most, name); } }, COLUMNS[name].title + (name === sorts[table.key] ? " ▾" : "")));
    whole.replaceChildren(make("table", { class: "sums" }, make("caption", {}, table.title),
      make("thead", {}, make("tr", {}, ...table.columns.map(head))),
      make("tbody", {}, ...sorted.slice(0, most).map(e => several( // names are long: figures stand below them
        make("tr", { "data-event": p.id(e) }, make("td", { colspan: table.columns.length }, link(e), " ", named(p.text(e, OP)), " ", make("span", { class: "dim" }, named(p.text(e, MODULE)), table.note ? " " + table.note(p, e) : ""))),
        make("tr", { class: "more" }, ...table.columns.map(c => make("td", { class: "number", "data-cell": c }, COLUMNS[c].text(p, e)))))))));
    if (sorted.length > most) whole.append(make("button", { type: "button", class: "link", click: () => draw(most + MORE_ROWS) }, Math.min(MORE_ROWS, sorted.length - most) + " more of " + grouped(sorted.length)));
    const button = focused && whole.querySelector("[data-column=" + focused + "]");
    if (button) button.focus();
  };
  draw(FIRST_ROWS);
  return [whole];
}
