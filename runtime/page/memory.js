// ── memory.js: the memory of a rank, as predicted and as measured. Knows the runs and the document. ─────────────────────────

// In the order of their colours (--class-*); as in the page of a plan.
const CLASSES = ["parameters", "optimizer state", "gradients", "buffers", "inputs", "record", "unsharded", "unsharded gradients", "activations", "temporary", "workspace", "host"];
const GAPS = "between storages"; // what the arena has at its peak and no storage holds

// [{name, bytes}] of the arena at its peak, largest first; none: the log is older than this figure.
function peakOf(start) {
  const held = start.peak.reduce((sum, c) => sum + c.bytes, 0), parts = [...start.peak].sort((a, b) => b.bytes - a.bytes);
  return held > 0 && held < start.arena ? [...parts, { name: GAPS, bytes: start.arena - held }] : parts;
}

// Rows of the table: { key, name, bytes, parts }.
function memoryRows(run) {
  const s = run.last, rows = [], row = (key, name, bytes, parts) => { if (bytes > 0) rows.push({ key, name, bytes, parts: parts || [] }); };
  if (s) {
    row("arena", "arena, predicted", s.arena, peakOf(s));
    row("allocated", "arena, allocated", s.allocated);
  }
  row("device_predicted", "process on the fullest GPU, predicted", run.device_predicted);
  row("device_used", "process on the fullest GPU, used", run.device_used);
  if (s) {
    row("usable", "usable on the device", s.usable);
    row("host", "host memory, predicted", s.host);
  }
  return rows;
}

function memoryPanel() {
  const shown = data.runs.map(run => [run, memoryRows(run)]).filter(([, rows]) => rows.length), most = Math.max(0, ...shown.flatMap(([, rows]) => rows.map(r => r.bytes)));
  const part = (name, bytes) => {
    const at = CLASSES.indexOf(name), element = make("span", { class: at < 0 ? "part plain" : "part", title: name + ", " + bytesText(bytes) });
    if (at >= 0) element.style.background = "var(--class-" + at + ")";
    return element;
  };
  const sized = (element, bytes) => { element.style.width = 100 * bytes / most + "%"; return element; };
  $("memory-section").hidden = !shown.length;
  $("memory").replaceChildren(...shown.map(([run, rows]) => make("div", { class: "memory" },
    shown.length > 1 && make("h3", { title: run.name }, run.label),
    make("table", { "aria-label": "Memory of each rank" + (shown.length > 1 ? ", " + run.label : "") }, make("tbody", {}, ...rows.map(r => make("tr", {},
      make("th", { scope: "row" }, r.name), make("td", { class: "track" }, make("div", { class: "bar" }, ...(r.parts.length ? r.parts : [r]).map(p => sized(part(r.parts.length ? p.name : "", p.bytes), p.bytes)))),
      make("td", { "data-memory": r.key, "data-run": run.index, "data-value": r.bytes, title: grouped(r.bytes) + " B" }, bytesText(r.bytes)))))),
    rows[0].parts.length > 0 && make("ul", { class: "parts", "aria-label": "In the arena at its peak" }, ...rows[0].parts.map(p => make("li", { "data-class": p.name, "data-run": run.index, "data-value": p.bytes, title: grouped(p.bytes) + " B" },
      part(p.name, p.bytes), make("span", { class: "name" }, p.name), " ", bytesText(p.bytes)))))));
}
