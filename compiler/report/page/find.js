// ── find.js: what is typed into Find. ────────────────────────────────────────────────────────────────────────────────────────────
// Words, all of which must be in an event's id, op, module and phase, or in a storage's name, owner and class; and beside them any of
//   0x1a2b00        the storages that have this address
//   decoder.lua:42  the events of a line of Lua; decoder.lua those of a file
//   >5ms  <10us     events by their duration
//   >1GiB           storages by their size

const TIME_UNITS = { us: 1, ms: 1e3, s: 1e6 }, SIZE_UNITS = { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30 };

function parseQuery(text) {
  const q = { words: [], addresses: [], lines: [], times: [], sizes: [] };
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const line = /^(.+?)(?::(\d+))?$/.exec(word), than = /^([<>])([\d.]+)(us|ms|s|b|kib|mib|gib)$/.exec(word);
    if (/^0x[0-9a-f]{1,13}$/.test(word)) q.addresses.push(parseInt(word, 16));
    else if (than) {
      const [, sign, number, unit] = than, limit = Number(number) * (TIME_UNITS[unit] || SIZE_UNITS[unit]);
      (unit in TIME_UNITS ? q.times : q.sizes).push(x => sign === ">" ? x > limit : x < limit);
    } else if (line[2] ? line[1].includes(".") : line[1].endsWith(".lua")) q.lines.push([line[1], line[2] ? Number(line[2]) : null]);
    else q.words.push(word);
  }
  q.any = q.words.length + q.addresses.length + q.lines.length + q.times.length + q.sizes.length > 0;
  return q;
}

// Events and storages of a program that a query means; an event of exactly that id comes first, and of storages at one address the one that is alive at
// event `now`. us: time of all such events.
function find(p, text, most, arena, now) {
  const q = parseQuery(text), found = { events: [], storages: [], total: 0, us: 0 }, { plan } = p;
  if (!q.any) return found;
  const holds = text => q.words.every(w => text.includes(w)), lower = plan.lower ||= plan.strings.map(s => s.toLowerCase());
  const ofLine = e => { const [file, line] = p.source(e); return q.lines.every(([f, l]) => (l === null || l === line) && (file.toLowerCase() === f || file.toLowerCase().endsWith("/" + f))); };
  if (!q.addresses.length && !q.sizes.length)
    for (let e = 0; e < p.n; e++) {
      const id = p.ids[e].toLowerCase();
      if (!holds(id + " " + lower[p.op[e]] + " " + lower[p.module[e]] + " " + plan.phases[p.phase[e]]) || !q.times.every(t => t(p.took[e])) || (q.lines.length && !ofLine(e))) continue;
      found.total++;
      found.us += p.took[e];
      if (id === q.words[0]) found.events.unshift(e);
      else if (found.events.length < most) found.events.push(e);
    }
  if (q.lines.length || q.times.length) return found;
  const alive = s => s.program < 0 || (s.first <= now && now <= s.last);
  const storages = p.storages.filter(s => holds(s.name.toLowerCase() + " " + s.owner.toLowerCase() + " " + plan.classes[s.cls]) &&
    q.addresses.every(a => s.arena === arena && s.offset <= a && a < s.offset + s.size) && q.sizes.every(x => x(s.size)));
  if (q.addresses.length) storages.sort((a, b) => alive(b) - alive(a));
  found.total += storages.length;
  found.storages = storages.slice(0, most / 2).map(s => s.index);
  return found;
}

// Why a query finds nothing: which of its parts finds nothing by itself, or that no two or more of them hold of the same.
function nothingFound(p, text, arena, now) {
  const parts = text.split(/\s+/).filter(Boolean), none = parts.filter(part => !find(p, part, 2, arena, now).total);
  if (none.length) return "nothing has " + none.join(", nor ");
  return "each part has something, but nothing has all of " + parts.join(", ");
}
