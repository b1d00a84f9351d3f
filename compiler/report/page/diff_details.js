// ── diff_details.js: the panels and the list of changes, as elements. ───────────────────────────────────────────────────────

function badge(side) { return make("span", { class: "side " + side }, side.toUpperCase()); }
// A name that may be broken after its dots and underscores.
function broken(name) {
  return make("span", { class: "name" }, ...name.split(/(?<=[._])/).flatMap((part, i) => [i ? make("wbr") : "", part]));
}
// A change of a figure: its sign, its amount, and whether it is for the better. less: less of it is better; null: neither is.
function delta(measure, a, b, less) {
  const equal = seenSame(measure, a, b), worse = !equal && (b > a) === less;
  return make("span", { class: "delta" + (equal ? " dim" : less === null ? "" : worse ? " worse" : " better"), "data-delta": b - a }, equal ? "= " : b > a ? "▲ " : "▼ ", deltaText(measure, a, b),
    equal || less === null ? "" : make("span", { class: "only-read" }, worse ? ", worse" : ", better"));
}
function glyph(kind, change) {
  const g = make("span", { class: "glyph", "aria-hidden": "true" }, kind.signs[change]);
  if (kind === EVENT_KIND) g.style.background = "var(--change-" + change + ")";
  else g.style.background = "var(--change-" + [ADDED, REMOVED, LONGER, SHORTER, OTHER_OP, OTHER_OP, OTHER_WAITS][change] + ")";
  return g;
}

class PairDetails {
  constructor(state, diff, select) {
    Object.assign(this, { state, diff, select });
    this.opened = new Set(); // rows of the list that are open, kept while it is made anew
  }

  // Whether less of it is better. Times of steps that do not do the same work are neither: tokens a second are.
  less(measure) { return measure === "time" && this.diff.work[0] !== this.diff.work[1] ? null : true; }

  // ── a selection: a table of what A and B say; rows that differ are marked. rows: [title, in A, in B, compared] ──
  table(pair, rows) {
    const cell = x => make("td", {}, ...(x === null || x === undefined ? [make("span", { class: "dim" }, "–")] : [].concat(x).map(t => typeof t === "string" ? named(t) : t)));
    const text = x => x === null || x === undefined ? "" : [].concat(x).map(t => typeof t === "string" ? t : t.textContent).join("");
    return make("table", { class: "pair" },
      make("thead", {}, make("tr", {}, make("td", {}), make("th", { scope: "col" }, badge("a")), make("th", { scope: "col" }, badge("b")))),
      make("tbody", {}, ...rows.filter(Boolean).filter(r => r[1] !== null || r[2] !== null).map(([title, a, b, compared = true]) => {
        const differs = compared && pair.a >= 0 && pair.b >= 0 && text(a) !== text(b);
        return make("tr", { class: differs ? "differs" : false, "data-fact": title }, make("td", {}, (differs ? "≠ " : "") + title, differs && make("span", { class: "only-read" }, " differs")), cell(a), cell(b));
      })));
  }

  said(pair, kind) {
    const names = kind === EVENT_KIND ? this.diff.event_changes : this.diff.storage_changes, changes = changesOf(pair, names);
    return make("p", {}, ...(changes.length ? changes.flatMap((name, i) => [i ? " " : "", glyph(kind, names.indexOf(name)), " " + name + (/^issued/.test(name) ? ", " + placesText(pair.places, pair.places) + this.shift(pair) : "")])
      : ["not changed: only its time, its number and addresses may differ"]));
  }

  // How much later it starts: what is issued sooner may start later, and the other way round.
  shift(pair) {
    const g = this.state.program, by = g.b.start[pair.b] - g.a.start[pair.a];
    return "; it starts " + (Math.abs(by) < .005 ? "at the same time" : timeText(Math.abs(by)) + (by > 0 ? " later" : " earlier"));
  }

  eventLink(side, e) {
    return make("button", { type: "button", class: "link", click: () => this.select({ event: this.state.program.event(side, e) }, true, side) }, this.state.program[side].id(e));
  }
  storageLink(side, i) {
    return make("button", { type: "button", class: "link", click: () => this.select({ storage: this.state.program.storage(side, i) }, false, side) }, this.diff[side].storages[i].name);
  }

  both(pair, read) { return SIDES.map(side => pair[side] < 0 || !this.state.program[side] ? null : read(this.state.program[side], pair[side], side)); }

  event(pair) {
    const g = this.state.program, row = (title, read, compared) => [title, ...this.both(pair, (p, e, side) => read(p.row(e), p, e, side)), compared];
    const commas = (list, make) => list.length ? list.flatMap((x, i) => [i ? ", " : "", make(x)]) : null;
    const uses = (list, p, side) => commas(p.touched(list), ([s, bytes]) => make("span", {}, this.storageLink(side, s), " " + bytesText(bytes)));
    return [
      make("h2", {}, g.id(pair) + "  ", named(g[pair.b >= 0 ? "b" : "a"].text(pair.b >= 0 ? pair.b : pair.a, OP))),
      this.said(pair, EVENT_KIND),
      this.table(pair, [
        row("op", (r, p, e) => p.text(e, OP) || null),
        row("stream", (r, p, e) => p.plan.stream_names[p.stream[e]]),
        row("phase", (r, p, e) => p.plan.phases[p.phase[e]]),
        row("module", (r, p, e) => p.text(e, MODULE) || "(model)"),
        row("unit", (r, p) => r[UNIT] >= 0 ? p.plan.units[r[UNIT]] || "(model)" : null),
        row("ranks", (r, p) => r[COMM] >= 0 ? p.plan.comms[r[COMM]][0] + ", " + p.plan.comms[r[COMM]][1] : null),
        row("Lua line", (r, p) => p.plan.texts[r[FILE]] ? p.plan.texts[r[FILE]] + ":" + r[LINE] : null),
        row("issued as", (r, p, e) => "event " + grouped(e + 1) + " of " + grouped(p.n), false),
        row("starts", (r, p, e) => make("span", { "data-value": p.start[e] }, timeText(p.start[e])), false),
        row("takes", (r, p, e) => make("span", { "data-value": p.took[e] }, timeText(p.took[e]))),
        row("arithmetic", r => r[FLOPS] > 0 ? amountText(r[FLOPS], "FLOP") : null),
        row("bytes moved", r => r[BYTES] > 0 ? bytesText(r[BYTES]) : null),
        row("starts when", (r, p, e, side) => p.starter(e) < 0 ? "the program does" : [this.eventLink(side, p.starter(e)), " ends"], false),
        row("waits for", (r, p, e, side) => commas(p.waits(e), w => this.eventLink(side, w))),
        row("reads", (r, p, e, side) => uses(r[READS], p, side)),
        row("writes", (r, p, e, side) => uses(r[WRITES], p, side)),
      ]),
    ];
  }

  storage(pair) {
    const of = side => this.diff[side].storages[pair[side]];
    const row = (title, read, compared) => [title, ...SIDES.map(side => pair[side] < 0 ? null : read(of(side), this.state.program[side], side)), compared];
    const always = s => s.program < 0;
    return [
      make("h2", {}, named(this.state.program.storageName(pair))),
      this.said(pair, STORAGE_KIND),
      this.table(pair, [
        row("class", (s, p, side) => this.diff[side].classes[s.cls]),
        row("owner", s => s.owner || "(model)"),
        row("arena", s => s.arena ? "host" : "device"),
        row("size", s => make("span", { "data-bytes": s.size }, bytesText(s.size) + " = " + grouped(s.size) + " B")),
        row("address", s => addressText(s.offset), false),
        row("in use", (s, p) => always(s) ? "always" : !p ? null : timeText(p.from[s.index]) + " to " + timeText(p.to[s.index]), false),
        row("first event", (s, p, side) => always(s) || !p ? null : this.eventLink(side, s.first)),
        row("last event", (s, p, side) => always(s) || !p ? null : this.eventLink(side, s.last)),
      ]),
    ];
  }

  // What a screen reader says of a selection, and the tip at the pointer.
  sentence(selection) {
    const g = this.state.program, { event, storage } = selection;
    if (event) {
      const changes = changesOf(event, this.diff.event_changes).join(", ") || "not changed", side = event.b >= 0 ? "b" : "a", p = g[side];
      return g.id(event) + ", " + p.text(event[side], OP) + ", " + p.plan.phases[p.phase[event[side]]] + " " + (p.text(event[side], MODULE) || p.plan.model) + ": " + changes + (event.places ? ", " + placesText(event.places, event.places) : "") +
        this.both(event, (q, e, s) => "\n" + s.toUpperCase() + ": on " + q.plan.stream_names[q.stream[e]] + ", at " + timeText(q.start[e]) + ", takes " + timeText(q.end[e] - q.start[e])).filter(Boolean).join("");
    }
    return g.storageName(storage) + ": " + (changesOf(storage, this.diff.storage_changes).join(", ") || "not changed") +
      SIDES.filter(s => storage[s] >= 0).map(s => "\n" + s.toUpperCase() + ": " + this.diff[s].classes[this.diff[s].storages[storage[s]].cls] + ", " + bytesText(this.diff[s].storages[storage[s]].size)).join("");
  }

  // ── sums: tables by class and module, those that differ first ──
  sums(title, key, measure, most, list = this.diff[key]) {
    const size = r => same(r[1], r[2]) ? -1 : Math.abs(r[2] - r[1]);
    const rows = [...list].sort((x, y) => size(y) - size(x) || y[2] - x[2] || (x[0] < y[0] ? -1 : 1)).map(([name, a, b]) =>
      make("tr", { class: seenSame(measure, a, b) ? "dim" : false, "data-sum": name, "data-a": a, "data-b": b }, make("td", {}, broken(name)), make("td", { class: "number" }, MEASURES[measure](a)), make("td", { class: "number" }, MEASURES[measure](b)), make("td", { class: "number" }, delta(measure, a, b, this.less(measure)))));
    if (!rows.length) return null;
    const heads = make("thead", {}, make("tr", {}, make("td", {}), make("th", { scope: "col", class: "number" }, badge("a")), make("th", { scope: "col", class: "number" }, badge("b")), make("th", { scope: "col", class: "number" }, "change")));
    const rest = rows.slice(most), body = make("tbody", {}, ...rows.slice(0, most)), table = make("table", { class: "sums", "data-table": key }, make("caption", {}, title), heads, body);
    const more = rest.length > 0 && make("button", { type: "button", class: "link", click: e => { body.append(...rest); e.target.remove(); } }, "all " + list.length + " rows");
    return make("div", {}, table, more);
  }

  // ── the list of changes ──
  // A row of the list: how many, which change, of what, in A, in B, the difference.
  line(kind, row) {
    const names = kind === EVENT_KIND ? this.diff.event_changes : this.diff.storage_changes, measure = kind === EVENT_KIND ? "time" : "bytes", c = row.change;
    const moved = kind === EVENT_KIND && (c === SOONER || c === LATER), plain = kind === EVENT_KIND ? c === OTHER_WAITS : c > SHRANK;
    const side = x => make("span", { class: "number" }, x);
    return make("span", { class: "change", "data-kind": kind.name, "data-change": names[c], "data-count": row.pairs.length, "data-what": row.what, "data-from": row.from, "data-to": row.to },
      make("span", { class: "number" }, grouped(row.pairs.length)), make("span", {}, glyph(kind, c), " " + names[c]), make("span", { class: "what" }, named(row.what)),
      side(row.pairs.some(p => p.a >= 0) ? MEASURES[measure](row.from) : "–"), side(row.pairs.some(p => p.b >= 0) ? MEASURES[measure](row.to) : "–"),
      moved ? side(placesText(row.least, row.most)) : plain ? side("") : make("span", { class: "number" }, delta(measure, row.from, row.to, this.less(measure))));
  }

  one(kind, pair, content) {
    return make("div", { class: "one" }, make("button", { type: "button", class: "plain", "data-pair": kind.name + pair.a + "," + pair.b, click: () => this.select({ [kind.name]: pair }, kind === EVENT_KIND) }, content));
  }

  // One change of one pair, below its row.
  member(kind, row, pair) {
    const g = this.state.program, [side, s] = kind === EVENT_KIND ? [pair.b >= 0 ? "b" : "a"] : g.sideOf(pair);
    const what = kind === EVENT_KIND ? g.id(pair) + "  " + (g[side].text(pair[side], MODULE) || "(model)") : s.name + "  " + (s.owner || "(model)");
    return this.one(kind, pair, this.line(kind, { change: row.change, what, pairs: [pair], from: g.amount(kind, "a", pair), to: g.amount(kind, "b", pair), least: pair.places, most: pair.places }));
  }

  row(kind, row, mark) {
    if (row.pairs.length === 1) return this.one(kind, row.pairs[0], this.line(kind, row));
    const key = kind.name + row.change + row.what, most = 300, d = make("details", { open: this.opened.has(key) }, make("summary", {}, this.line(kind, row)));
    let filled = false;
    const fill = () => {
      if (!d.open || filled) return;
      filled = true;
      d.append(make("div", {}, ...row.pairs.slice(0, most).map(pair => this.member(kind, row, pair)), row.pairs.length > most && make("p", { class: "dim" }, "and " + (row.pairs.length - most) + " more: Find narrows the list")));
    };
    fill();
    d.addEventListener("toggle", () => { this.opened[d.open ? "add" : "delete"](key); fill(); if (kind === EVENT_KIND) mark(d.open ? row.pairs : []); });
    return d;
  }

  // title; counts of each change, of all that changed; rows. list: those that Find and the buttons leave.
  section(kind, title, list, all, only, mark) {
    const g = this.state.program, names = kind === EVENT_KIND ? this.diff.event_changes : this.diff.storage_changes, most = 300;
    const rows = g.rows(kind, list, kind === EVENT_KIND ? only : -1), counts = g.count(all, names).flatMap((n, c) => n || (c <= REMOVED && all.length) ? [grouped(n) + " " + names[c]] : []);
    return make("section", { "data-section": title, "aria-label": title },
      make("h2", {}, title, make("span", { class: "dim" }, counts.length ? ": " + counts.join(", ") : ": none changed", kind === STORAGE_KIND && rows.some(r => r.pairs.length > 1) ? "; the bytes of a row are the most that are alive at once" : "", list.length < all.length ? "; " + grouped(list.length) + " of " + grouped(all.length) + " found" : "")),
      rows.length > 0 && make("div", { class: "change heads", "aria-hidden": "true" }, ...["", "change", "of", "A", "B", "difference"].map((t, i) => make("span", { class: i > 2 ? "number" : false }, t))),
      ...rows.slice(0, most).map(row => this.row(kind, row, mark)),
      rows.length > most && make("p", { class: "dim" }, "and " + grouped(rows.length - most) + " more rows: Find narrows the list"));
  }
}
