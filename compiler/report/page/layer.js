// ── layer.js: one module of many alike: its neighbours, what differs, when its unit is gathered and freed. ────────────────────────

const MOST_COMPARED = 64; // modules alike that a median is of

// Modules that differ from this one in the number of its innermost layer alone, in their order; []: it is in no layer.
function alike(p, path) {
  const names = path.split("."), at = names.findLastIndex(isNumber), list = at < 0 ? null : p.modules.find(names.slice(0, at).join("."));
  if (!list) return [];
  const rest = names.slice(at + 1), all = [...list.children.values()].filter(n => isNumber(n.name)).sort((a, b) => a.name - b.name);
  return all.map(n => [n.path, ...rest].join(".")).filter(path => p.modules.find(path));
}

// What is compared: a name, a value of a module, how it reads.
const COMPARED = [
  ...["forward", "recompute", "backward", "optimizer"].map(phase => [phase, x => x.phases.get(phase) || 0, timeText]),
  ["exposed", x => x.exposed, timeText],
  ["on the wire", x => x.wire, bytesText],
  ["alive at the peak", x => x.held, bytesText],
];
function figuresOf(p, path, arena) {
  const s = new Summary(p, { module: path });
  return { phases: new Map(s.phases().map(r => [r.name, r.us])), exposed: s.exposed().reduce((sum, r) => sum + r.us, 0), wire: s.bytes(COLLECTIVE),
    held: p.peak_event < 0 ? 0 : p.live(arena, p.peak_event).reduce((sum, x) => within(x.owner, path) ? sum + x.size : sum, 0) };
}
function median(values) {
  const sorted = values.slice().sort((a, b) => a - b), k = sorted.length >> 1;
  return sorted.length % 2 ? sorted[k] : (sorted[k - 1] + sorted[k]) / 2;
}

// link(text, path): an element that selects a module.
function compareLayers(p, path, arena, link) {
  const all = alike(p, path), at = all.indexOf(path);
  if (all.length < 2 || at < 0) return [];
  const step = Math.max(1, all.length / MOST_COMPARED), some = all.filter((_, i) => Math.floor(i / step) !== Math.floor((i - 1) / step)), of = new Map();
  const figures = path => { if (!of.has(path)) of.set(path, figuresOf(p, path, arena)); return of.get(path); };
  const beside = [at - 1, at, at + 1].filter(i => i >= 0 && i < all.length);
  const short = path => path.split(".").slice(path.split(".").findLastIndex(isNumber)).join(".");
  const rows = COMPARED.map(([name, value, text]) => {
    const values = beside.map(i => value(figures(all[i]))), middle = median(some.map(path => value(figures(path))));
    return Math.max(...values, middle) > 0 && make("tr", { "data-compared": name }, make("td", {}, name), ...values.map((v, i) => make("td", { class: "number", "data-value": v, "data-module": all[beside[i]] }, v > 0 ? text(v) : "0")), make("td", { class: "number", "data-median": middle }, text(middle)));
  }).filter(Boolean);
  return [make("table", { class: "sums", id: "compared" }, make("caption", {}, "Beside its neighbours"),
    make("thead", {}, make("tr", {}, make("td", {}), ...beside.map(i => make("th", { scope: "col", class: "number" }, i === at ? named(short(all[i])) : link(short(all[i]), all[i]))),
      make("th", { scope: "col", class: "number" }, "median of " + some.length))), make("tbody", {}, ...rows))];
}

// [phase, from, to] of a module's events on the leading stream.
function kernelSpans(p, path) {
  const of = new Map();
  for (const e of new Summary(p, { module: path }).events) {
    if (p.stream[e] !== p.leading.stream) continue;
    const phase = p.plan.phases[p.phase[e]], span = of.get(phase) || of.set(phase, [phase, Infinity, 0]).get(phase);
    span[1] = Math.min(span[1], p.start[e]);
    span[2] = Math.max(span[2], p.end[e]);
  }
  return [...of.values()];
}

// Whether a gather further ahead of compute could start earlier: not where its stream has been busy since the program began, or where it waits for what
// writes the parameters.
function couldStartEarlier(p, e) {
  let k = e, by = p.starter(k);
  while (by >= 0 && p.stream[by] === p.stream[e]) { k = by; by = p.starter(k); }
  if (by < 0) return false;
  const read = new Set(p.touched(p.row(k)[READS]).map(([s]) => s));
  return !p.touched(p.row(by)[WRITES]).some(([s]) => read.has(s));
}

// What is known of gathering units like that of gather e further ahead: { pattern, exposed, bytes, earlier, none, entry }, in e's phase; null: e gathers
// no unit's parameters. earlier: whether e could start earlier; none: no gather like it could; entry: of a policy file, "" where only a model tells.
function gatheredAhead(p, e) {
  const { plan } = p, cls = plan.classes.indexOf("unsharded"), r = p.row(e), pattern = pathPattern(p.text(e, MODULE)), unit = r[UNIT];
  if (p.kind[e] !== COLLECTIVE) return null;
  const bytes = p.touched(r[WRITES]).reduce((sum, [s]) => plan.storages[s].program >= 0 && plan.storages[s].cls === cls ? sum + plan.storages[s].size : sum, 0);
  if (!bytes) return null;
  const like = x => p.op[x] === p.op[e] && p.phase[x] === p.phase[e] && pathPattern(p.text(x, MODULE)) === pattern;
  let exposed = 0;
  for (const part of p.exposedParts()) if (like(part.e)) exposed += part.us;
  const earlier = couldStartEarlier(p, e);
  if (!earlier && !p.ids.some((_, x) => like(x) && couldStartEarlier(p, x))) return { pattern: pattern || "(model)", exposed, bytes, earlier, none: true, entry: "" };
  const known = unit >= 0 && plan.prefetch[unit], plain = /^[\w.*-]*$/.test(pattern), [forward, backward] = known || [];
  const more = known && (plan.phases[p.phase[e]] === "forward" ? [forward + 1, backward] : [forward, backward + 1]);
  return { pattern: pattern || "(model)", exposed, bytes, earlier, none: false, entry: more && plain ? "{ match = \"" + pattern + "\", fully_shard = { prefetch = { forward = " + more[0] + ", backward = " + more[1] + " } } }" : "" };
}

// The gathers and reductions of the unit that a module is in: [{ e, freed }], freed: the event after which what was gathered is freed; -1: it gathers nothing.
function unitEvents(p, path) {
  const units = p.plan.units.filter(u => u === "" || u === path || path.startsWith(u + ".")), unit = units.reduce((a, b) => a === null || b.length > a.length ? b : a, null);
  if (unit === null) return null;
  const cls = p.plan.classes.indexOf("unsharded"), events = [];
  for (let e = 0; e < p.n; e++) {
    if (!p.communicates(e) || p.text(e, MODULE) !== unit) continue;
    const written = p.touched(p.row(e)[WRITES]).map(([s]) => p.plan.storages[s]).filter(s => s.program >= 0 && s.cls === cls);
    events.push({ e, freed: written.reduce((last, s) => Math.max(last, s.last), -1) });
  }
  return { unit, events };
}
