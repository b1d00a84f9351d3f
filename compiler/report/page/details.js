// ── details.js: the panels beside the timeline, as elements. ───────────────────────────────────────────────────────────────

function isScope(selection) { return selection !== null && (selection.range !== undefined || selection.module !== undefined); }

class Details {
  constructor(state, select, painter) {
    Object.assign(this, { state, select, painter });
    this.sorts = {}; // of tables of events: the columns that they are sorted by
    this.opened = new Set(); // owners whose storages are shown, kept while the cursor moves
  }

  link(text, selection) {
    return make("button", { type: "button", class: "link", click: () => this.select(selection, true) }, text);
  }
  eventLink(e) { return this.link(this.state.program.id(e), { event: e }); }
  storageLink(i) { return this.link(this.state.plan.storages[i].name, { storage: i }); }

  // ── an event: everything that the plan knows ──
  event(e) {
    const { program: p, plan } = this.state, r = p.row(e), us = p.took[e], before = p.idleBefore(e);
    const limit = r[LIMIT], peaks = plan.texts[r[PEAKS]].split(" ").map(Number);
    const rate = (x, unit, share, peak) => us > 0 && x > 0 ? [" (" + amountText(x / us * 1e6, unit + "/s") + (share > 0 ? ", " : ""), share > 0 && make("span", { "data-share": share }, percent(share) + " of " + amountText(peak, unit + "/s")), ")"].filter(Boolean) : [];
    const out = [
      make("h2", {}, p.id(e) + "  ", named(p.text(e, OP))),
      facts([
        ["stream", plan.stream_names[p.stream[e]]],
        ["phase", plan.phases[p.phase[e]] + ", " + KIND_NAMES[p.kind[e]] + (r[UPDATE] ? ", updates parameters" : "")],
        ["module", this.link(named(p.text(e, MODULE) || "(model)"), { module: p.text(e, MODULE) })],
        r[UNIT] >= 0 && ["unit", named(plan.units[r[UNIT]] || "(model)")],
        r[COMM] >= 0 && ["ranks", plan.comms[r[COMM]][0] + ", " + plan.comms[r[COMM]][1] + " ranks"],
        plan.texts[r[FILE]] && ["Lua line", named(plan.texts[r[FILE]] + ":" + r[LINE])],
        ["starts", make("span", { "data-value": p.start[e] }, timeText(p.start[e]))],
        before >= .005 && ["idle before it", make("span", { "data-value": before }, timeText(before))],
        ["takes", make("span", { "data-value": us }, timeText(us))],
        ["may end later", make("span", { "data-value": p.slack[e] }, p.slack[e] > 0 ? timeText(p.slack[e]) : "no"), p.slack[e] > 0 ? ", without a longer step" : ": it is on the critical path, and the step is longer by whatever it takes longer"],
        p.actual && ["took in the run", make("span", { "data-value": p.actual.took[e] }, timeText(p.actual.took[e])), us > 0 ? ", " + (p.actual.took[e] / us).toFixed(2) + " times as predicted" : ""],
        p.actual && ["ran", make("span", { "data-value": p.actual.start[e] }, timeText(p.actual.start[e])), " to ", make("span", { "data-value": p.actual.end[e] }, timeText(p.actual.end[e]))],
        r[FLOPS] > 0 && ["arithmetic", make("span", { "data-value": r[FLOPS] }, amountText(r[FLOPS], "FLOP")), ...rate(r[FLOPS], "FLOP", limit[FLOPS_SHARE], peaks[0])],
        r[BYTES] > 0 && [r[COMM] >= 0 ? "on the wire" : p.kind[e] === COPY ? "copied" : "memory traffic", make("span", { "data-value": r[BYTES] }, bytesText(r[BYTES])), ...rate(r[BYTES], "B", limit[BYTES_SHARE], peaks[1]), limit[BYTES_SHARE] > 0 ? " over " + plan.routes[p.over[e]] : ""],
        limit[BOUND] > 0 && ["bound by", (limit[BOUND] === BOUND_ARITHMETIC ? "arithmetic" : plan.routes[p.over[e]]) + ": " + percent(p.limit[e] / us) + " of the limit, which is " + timeText(p.limit[e])],
      ]),
      this.accesses("Reads", r[READS], r[OPERANDS]),
      this.accesses("Writes", r[WRITES], r[RESULTS]),
      this.frees(e),
      p.statement(e) && make("div", {}, make("h3", {}, "Emitted statement"), make("pre", { class: "statement" }, p.statement(e).replace(/\n {8,}/g, " ").replace(/^ +/gm, "").trim())),
    ];
    return out.filter(Boolean);
  }

  // Who made an event, and what decided its place in the issue order; a plan.json and a binary do not say it.
  origin(o) {
    const { texts } = this.state.plan, event = e => e >= 0 ? [" ", this.eventLink(e), " ", named(this.painter.eventLabel(e))] : [];
    return make("div", {}, make("h3", {}, "Why it stands here"), make("p", { id: "origin" }, "It is here to " + texts[o[PURPOSE]] + ". ",
      ...(texts[o[PASS]] ? ["Made by pass " + texts[o[PASS]], ...(o[MADE_FOR] >= 0 ? [" for", ...event(o[MADE_FOR])] : []), ". "] : []),
      ...(texts[o[MADE_KERNEL]] ? ["Computed by " + texts[o[MADE_KERNEL]] + ". "] : []),
      ...(texts[o[ISSUED]] ? ["Issued ", make("span", { id: "issued" }, texts[o[ISSUED]], ...event(o[ISSUED_BY])), "."] : ["Which pass made it and what decided its place, only a model tells: a plan.json and a binary do not."])));
  }

  // ── why an event stands where it stands ──
  why(e) {
    const { program: p } = this.state;
    return [make("h2", {}, this.eventLink(e), "  ", named(p.text(e, OP) + "  " + p.text(e, MODULE))), this.origin(p.row(e)[ORIGIN]), this.waits(e), this.ahead(e)].filter(Boolean);
  }

  // What gathering one unit further ahead could change, of a gather of a unit.
  ahead(e) {
    const { program: p, plan } = this.state, x = gatheredAhead(p, e);
    if (!x) return null;
    const never = "This gather cannot start earlier: " + (p.starter(e) < 0 ? "it starts with the program." : "its stream is busy since the program began, or it waits for what writes the parameters.");
    if (x.none) return make("div", { id: "ahead" }, make("h3", {}, "One unit further ahead"), make("p", { "data-never": "" }, never));
    return make("div", { id: "ahead" }, make("h3", {}, "One unit further ahead"),
      !x.earlier && make("p", { "data-never": "" }, never + " Others of ", named(x.pattern), " can."),
      make("p", {}, "Compute waits ", make("span", { "data-value": p.exposedOf(e) }, timeText(p.exposedOf(e))), " for this gather, and ", make("strong", { "data-exposed": x.exposed }, timeText(x.exposed)), " in all for those of ", named(x.pattern), " in the " + plan.phases[p.phase[e]] +
        ": gathering earlier gains no more than that. It may hold ", make("strong", { "data-held": x.bytes }, bytesText(x.bytes)), " more, one unit. " + (p.slack[e] > 0 ? "This one could end " + timeText(p.slack[e]) + " later." : "")),
      ...(x.entry ? [make("p", {}, ...this.copied(x.entry))] : [make("p", { class: "dim" }, "How far ahead units are gathered now, only a model tells: set ", make("code", {}, "prefetch"), " in its fully_shard.")]));
  }

  // operands: [name, shape, storage] of values; several may lie in one storage.
  accesses(title, list, operands) {
    if (!list.length) return null;
    const { program: p, plan } = this.state, rows = [], touched = p.touched(list);
    for (const [storage, bytes, at] of touched) {
      const s = plan.storages[storage], shapes = [];
      for (let k = 0; k < operands.length; k += 3) if (operands[k + 2] === s.index) shapes.push(plan.texts[operands[k]] + " " + plan.texts[operands[k + 1]]);
      rows.push(make("tr", { "data-storage": s.name },
        make("td", {}, this.storageLink(s.index), ...shapes.flatMap(t => [make("br"), t]), make("br"),
          make("span", { class: "dim" }, swatch(this.painter.classes[s.cls]), plan.classes[s.cls] + (s.arena ? " (host)" : "") + ", ", named(s.owner || "(model)"))),
        make("td", { class: "number" }, bytesOf(bytes), make("br"), make("span", { class: "dim", "data-address": s.offset + at }, addressText(s.offset + at)))));
    }
    return make("div", {}, make("h3", { "data-accesses": title.toLowerCase() }, title + " ", bytesOf(touched.reduce((sum, t) => sum + t[1], 0))), make("table", {}, make("tbody", {}, ...rows)));
  }

  waits(e) {
    const { program: p, plan } = this.state, waits = p.waits(e).map((w, i) => [w, ...p.row(e)[REASONS][i]]), waiting = p.waiting(e), most = 12, starter = p.starter(e);
    const when = w => p.overBefore(w, e) ? ", ended " + timeText(p.start[e] - p.end[w]) + " before: " : ", until " + timeText(p.end[w]) + ": ";
    return make("div", {},
      make("h3", {}, "Starts"),
      make("p", { id: "starter" }, ...(starter < 0 ? ["with the program: nothing is before it."]
        : ["when ", this.eventLink(starter), " ", named(p.text(starter, OP) + " " + p.text(starter, MODULE)), " on " + (p.stream[starter] === p.stream[e] ? "its own stream" : plan.stream_names[p.stream[starter]]) + " ends, at " + timeText(p.end[starter]) + "."])),
      make("h3", {}, "Waits for"),
      waits.length > 0 ? make("ul", { class: "plain", id: "waits" }, ...waits.map(([w, ...why]) =>
        make("li", { "data-event": p.id(w), class: p.overBefore(w, e) ? "dim" : false }, this.eventLink(w), " on " + plan.stream_names[p.stream[w]] + when(w), ...why.map((y, i) => named((i ? "; " : "") + plan.texts[y])))))
        : make("p", { class: "dim" }, "no event of another stream."),
      waiting.length > 0 && make("h3", {}, "Is waited for by"),
      waiting.length > 0 && make("p", {}, ...waiting.slice(0, most).flatMap((w, i) => [i ? ", " : "", this.eventLink(w)]), waiting.length > most && " and " + (waiting.length - most) + " more"));
  }

  // Bytes that begin and end with an event.
  frees(e) {
    const { program: p } = this.state, begin = p.storages.filter(s => s.program >= 0 && s.first === e), end = p.storages.filter(s => s.program >= 0 && s.last === e);
    if (!begin.length && !end.length) return null;
    const written = new Map(p.touched(p.row(e)[WRITES]).map(([s, bytes]) => [s, bytes])), sum = list => list.reduce((sum, s) => sum + s.size, 0);
    const part = begin.reduce((sum, s) => sum + (written.get(s.index) || 0), 0);
    const list = (title, storages, key) => storages.length > 0 && [make("h3", {}, title + " ", bytesOf(sum(storages))),
      make("p", { id: key }, ...storages.slice(0, 12).flatMap((s, i) => [i ? ", " : "", this.storageLink(s.index)]), storages.length > 12 && " and " + (storages.length - 12) + " more")];
    return make("div", {}, ...(list("Storages that begin here:", begin, "begins") || []),
      part < sum(begin) && make("p", { class: "dim" }, "They are held whole from here on. This event writes " + bytesText(part) + " of them, later ones the rest."), ...(list("Frees", end, "frees") || []));
  }

  // ── a storage ──
  storage(i) {
    const { program: p, plan } = this.state, s = plan.storages[i], users = p.users(i);
    const role = ([e, writes]) => make("li", {}, this.eventLink(e), " " + (writes ? "writes" : "reads") + ", " + plan.phases[p.phase[e]] + " ", named(p.text(e, OP) + " " + p.text(e, MODULE)));
    return [
      make("h2", {}, named(s.name)),
      facts([
        ["class", swatch(this.painter.classes[s.cls]), plan.classes[s.cls]],
        ["owner", named(s.owner || "(model)")],
        ["size", bytesOf(s.size), " = " + grouped(s.size) + " B"],
        ["address", addressText(s.offset) + " to " + addressText(s.offset + s.size) + (s.arena ? " of the host's arena" : "")],
        ["in use", s.program < 0 ? "always: it outlives programs" : timeText(p.from[i]) + " to " + timeText(p.to[i])],
        s.program >= 0 && ["first, last", this.eventLink(s.first), ", ", this.eventLink(s.last)],
      ]),
      make("h3", {}, "What would free it"),
      make("p", { id: "freeing" }, ...this.freeing(s, users)),
      make("h3", {}, "Used by " + users.length + (users.length === 1 ? " event" : " events")),
      make("ul", { class: "plain" }, ...users.slice(0, 60).map(role), users.length > 60 && make("li", { class: "dim" }, "and " + (users.length - 60) + " more")),
    ];
  }

  freeing(s, users) {
    const { plan, program: p } = this.state, name = plan.classes[s.cls], phase = e => plan.phases[p.phase[e]], code = t => make("code", {}, t);
    if (s.program < 0) {
      const more = plan.world > 1 ? "more ranks to shard over, or " : "";
      if (name === "parameters" || name === "gradients") return ["It lives as long as the process. Less of it: " + more + "a narrower dtype."];
      if (name === "optimizer state") return ["It lives as long as the process. Less of it: " + more + "on the host by ", code("offload = { optimizer = true }"), "."];
      return ["It lives as long as the process."];
    }
    const last = ["It is freed after ", this.eventLink(s.last), " (" + phase(s.last) + "), its last reader. "];
    const kept = phase(s.first) === "forward" && phase(s.last) === "backward";
    if (name === "activations" && kept) {
      const around = p.enclosing().get(s.index), most = p.recompute(pathPattern(around)), list = around !== "" && p.modules.find(around);
      if (around === "" || (list && isList(list)))
        return [...last, "It is kept from forward to backward, and several modules use it: recomputing one of them keeps it, as that module's input. Offload it in the meantime (", code("offload = { \"input\" }"), "), or recompute a module around all of them."];
      return [...last, "It is kept from forward to backward. All its readers are in ", named(around), ": recompute that module (", code("nn.checkpoint_wrapper"), ") to free it after the forward, or offload it in the meantime.",
        ...(most.bytes > 0 ? [" At the peak, recomputing ", named(pathPattern(around)), most.modules > 1 ? ", " + most.modules + " modules," : "", " frees ", make("strong", { "data-frees": most.bytes }, bytesText(most.bytes)), "; the backward of each brings ", bytesOf(most.one), " back for a while."] : [])];
    }
    if (name === "unsharded" && kept) return [...last, "Its unit stays gathered from forward to backward: ", code("reshard_after_forward = true"), " frees it in between, for one more gather."];
    if (name === "unsharded") return [...last, "A smaller unit, or a smaller ", code("prefetch"), ", holds fewer gathered bytes at a time."];
    if (name === "unsharded gradients") return [...last, "A smaller unit reduces earlier, and holds fewer gradients at a time."];
    return last;
  }

  // ── the live set ──
  live(e, why) {
    const { program: p, plan, arena } = this.state, list = p.live(arena, e), total = list.reduce((sum, s) => sum + s.size, 0);
    const by = new Map();
    for (const s of list) {
      if (!by.has(s.cls)) by.set(s.cls, { bytes: 0, owners: new Map() });
      const c = by.get(s.cls);
      c.bytes += s.size;
      const pattern = pathPattern(s.owner);
      if (!c.owners.has(pattern)) c.owners.set(pattern, { bytes: 0, names: new Set(), storages: [] });
      const o = c.owners.get(pattern);
      o.bytes += s.size;
      o.names.add(s.owner);
      o.storages.push(s);
    }
    const largest = m => [...m].sort((a, b) => b[1].bytes - a[1].bytes);
    const row = (text, bytes) => make("span", { class: "row" }, make("span", {}, ...text), bytesOf(bytes));
    return [
      make("h2", {}, "Alive " + why + " ", this.eventLink(e)),
      make("p", { class: "row" }, make("span", {}, plan.phases[p.phase[e]] + " ", named(p.text(e, MODULE))), make("strong", { id: "live-total", "data-bytes": total, title: grouped(total) + " B" }, bytesText(total))),
      e === p.peak_event && p.peak[arena] > total && make("p", { class: "dim", id: "beyond", "data-bytes": p.peak[arena] - total }, "The arena is " + bytesText(p.peak[arena] - total) + " larger: bytes go to another storage only when all streams are done with them" + (p.peak[arena] > p.bound[arena] ? ", and some lie between storages." : ".")),
      ...largest(by).map(([cls, c]) => this.fold("class " + cls, "class", plan.classes[cls], row([swatch(this.painter.classes[cls]), plan.classes[cls]], c.bytes), () =>
        largest(c.owners).map(([pattern, o]) => this.fold("owner " + cls + pattern, "owner", pattern, row([named(pattern || "(model)"), o.names.size > 1 ? " (" + o.names.size + ")" : ""], o.bytes), () =>
          o.storages.sort((a, b) => b.size - a.size).slice(0, 200).map(s => make("div", { class: "row" }, this.storageLink(s.index), bytesOf(s.size))))))),
      make("h3", {}, "By module, all classes"),
      ...this.modules(list, row),
      ...this.lines(list, row, largest),
    ].filter(Boolean);
  }

  // Bytes of storages by the line of Lua of the event that writes them first.
  lines(storages, row, largest) {
    const { program: p } = this.state, by = new Map();
    if (document.readyState === "loading") return []; // lines stand behind this script
    for (const s of storages) {
      if (s.program < 0) continue;
      const [file, line] = p.source(s.first), key = file ? file + ":" + line : "(no line)";
      if (!by.has(key)) by.set(key, { bytes: 0, storages: [] });
      by.get(key).bytes += s.size;
      by.get(key).storages.push(s);
    }
    if (!by.size) return [];
    return [make("h3", {}, "By line of Lua that makes it"), ...largest(by).map(([key, o]) => this.fold("line " + key, "line", key, row([named(key.split("/").pop())], o.bytes), () =>
      o.storages.sort((a, b) => b.size - a.size).slice(0, 200).map(s => make("div", { class: "row" }, this.storageLink(s.index), bytesOf(s.size)))))];
  }

  // Bytes of storages by their owners' paths, without numbers: each module with all that is in it.
  modules(storages, row) {
    const root = { bytes: 0, children: new Map() };
    for (const s of storages) {
      let node = root;
      for (const name of s.owner ? pathPattern(s.owner).replaceAll(".*", "\0*").split(".") : ["(model)"]) {
        if (!node.children.has(name)) node.children.set(name, { name: name.replaceAll("\0", "."), path: (node.path ? node.path + "." : "") + name.replaceAll("\0", "."), bytes: 0, children: new Map() });
        node = node.children.get(name);
        node.bytes += s.size;
      }
    }
    const rows = node => [...node.children.values()].sort((a, b) => b.bytes - a.bytes).map(c => c.children.size ? this.fold("module " + c.path, "module", c.path, row([named(c.name)], c.bytes), () => rows(c))
      : make("div", { class: "row leaf", "data-module": c.path }, make("span", {}, named(c.name)), bytesOf(c.bytes)));
    return rows(root);
  }

  // A part that opens; what is in it is made when it is opened first.
  fold(key, kind, name, summary, inside) {
    const d = make("details", { ["data-" + kind]: name, open: this.opened.has(key) }, make("summary", {}, summary));
    let filled = false;
    const fill = () => { if (d.open && !filled) { filled = true; d.append(make("div", {}, ...inside())); } };
    fill();
    d.addEventListener("toggle", () => { this.opened[d.open ? "add" : "delete"](key); fill(); });
    return d;
  }

  // ── what would lower the peak ──
  next() {
    const { program: p, plan } = this.state, most = 8;
    if (!p.savings.length) return [];
    const rows = p.savings.map(s => several(
      make("tr", { "data-saving": s.kind + " " + s.pattern, "data-bytes": s.bytes, "data-lower": s.lower, "data-us": s.us }, make("td", {}, s.kind + " ", named(s.pattern), s.modules > 1 ? " (" + s.modules + ")" : ""),
        ...[bytesOf(s.bytes), bytesOf(s.lower), s.us > 0 ? "+" + timeText(s.us) : "hidden"].map(x => make("td", { class: "number" }, x))),
      make("tr", { class: "more" }, make("td", { colspan: 4 }, ...this.copied(s.entry)))));
    const rates = plan.host_up > 0 ? ["Offload: what copies take longer than the kernels of the forward and of the backward that they run beside, at " + amountText(plan.host_up, "B/s") + " to the host and " + amountText(plan.host_down, "B/s") + " back a rank. "] : [];
    return [make("h2", {}, "What would lower the peak"),
      ...longTable({ class: "sums", "data-table": "next" }, ["policy, for which modules", "frees", "peak falls", "step"], rows, most),
      make("p", { class: "dim" }, "The most bytes of the peak a millisecond first. Frees: at the moment of today's peak; it falls by less where another moment is the highest then. Recompute: the durations, in this plan, of what would run again. ", ...rates,
        "Each is a file for ", make("code", {}, "--policy"), ", which may be given several times; ", make("code", {}, "shardc plan"), " mixes them under a budget and times the whole.")];
  }

  // An entry as a whole policy file, which a button copies; it is selected too, for browsers that give pages no clipboard.
  copied(entry) {
    const text = "return {\n  " + entry + "\n}\n", code = make("code", { class: "copied" }, text);
    return [code, " ", make("button", { type: "button", class: "link", "aria-label": "Copy a policy file of " + entry, click: () => {
      getSelection().selectAllChildren(code);
      if (navigator.clipboard) navigator.clipboard.writeText(text).catch(() => {});
      say("copied: " + entry + ", as a file for --policy");
    } }, "Copy")];
  }

  // ── sums of the program, of a range of time or of a module ──
  sums(scope) {
    const { program: p } = this.state, x = new Summary(p, scope), most = 8, all = scope.range ? x.to - x.from : p.step_us;
    const row = ({ name, count, us, more = [] }, of) => make("tr", { "data-sum": name, "data-count": count, "data-us": us, "data-share": of > 0 ? us / of : 0 },
      make("td", {}, named(name)), ...[grouped(count), timeText(us), of > 0 ? (100 * us / of).toFixed(1) + " %" : "", ...more].map(t => make("td", { class: "number" }, t)));
    // Streams run side by side: events take longer together than the program does, so their shares are those of the sum.
    const tableOf = (of, said) => (key, title, first, rows, ...more) => rows.length ? longTable({ class: "sums", "data-table": key }, [first, "events", "time", said, ...more], rows.map(r => row(r, of)), most, title) : [];
    const table = tableOf(x.events.reduce((sum, e) => sum + x.time(e), 0), "of the sum"), tableOfTime = tableOf(all, scope.range ? "of the range" : "of the program");
    const exposed = x.exposed(), phases = x.phases();
    return [
      make("h2", { id: "sums-of" }, ...this.scopeName(scope)),
      this.scopeFacts(x, scope),
      ...(scope.module !== undefined ? table("phases", "Time by phase, of all streams", "phase", phases) // what runs beside a module is not its own
        : table("phases", "Time by phase, of all streams, and how long events of other phases run beside it", "phase", phases.map(r => ({ ...r, more: [timeText(r.beside)] })), "beside")),
      ...table("ops", "Time by op, of all streams", "op", x.ops()),
      ...table("modules", "Time by module, of all streams", "module", x.modules()),
      ...tableOfTime("exposed", "Exposed communication, by what is waited for", "stream and module", exposed),
    ].filter(Boolean);
  }

  scopeFacts(x, scope) {
    const { program: p, arena } = this.state, [from, to] = x.span(), peak = x.peak(arena), live = e => p.memory(arena).total[e], exposed = x.exposed().reduce((sum, r) => sum + r.us, 0), whole = !isScope(scope);
    return facts([
      [scope.module === undefined ? "duration" : "from first to last", make("span", { "data-value": to - from }, timeText(to - from)), whole ? "" : ", from " + timeText(from) + " to " + timeText(to)],
      ["events", make("span", { "data-value": x.events.length }, grouped(x.events.length))],
      ["exposed", make("span", { "data-value": exposed }, timeText(exposed)), " of communication"],
      ["on the wire", ...[x.bytes(COLLECTIVE)].map(n => make("span", { "data-value": n }, bytesText(n)))],
      ...[x.bytes(COPY)].map(n => n > 0 && ["to and from the host", make("span", { "data-value": n }, bytesText(n))]),
      peak >= 0 && ["peak within", make("span", { "data-value": live(peak) }, bytesText(live(peak))), " at ", this.eventLink(peak)],
    ]);
  }

  // The events of a scope.
  events(scope) {
    const { program: p } = this.state, { events } = new Summary(p, scope);
    return [
      ...EVENT_TABLES.flatMap(t => eventTable(t, p, events, this.sorts, e => this.eventLink(e))),
      events.some(e => p.limit[e] > 0) && make("p", { class: "dim" }, "The limit of an event is the time that its FLOPs or its bytes take at least, at the peaks of the device's profile: those of a product or attention at its dtype, those of bytes over memory, the host's bus, links of the node or the network."),
    ].filter(Boolean);
  }

  scopeName({ range, module }) {
    const { program: p } = this.state;
    return range ? [timeText(Math.min(...range)) + " to " + timeText(Math.max(...range)) + " of " + p.name] : module !== undefined ? [named(module || "(model)"), " in " + p.name] : ["All of " + p.name];
  }

  // A range of time or a module, where an event's details stand.
  scope(scope) {
    const { program: p, arena } = this.state, { module } = scope, sums = make("p", { class: "dim" }, "By phase, op, module and event: under ", make("button", { type: "button", class: "link", click: () => showTab("tab-time", true) }, "Time"), ".");
    const head = [make("h2", {}, ...this.scopeName(scope)), this.scopeFacts(new Summary(p, scope), scope), sums];
    if (module === undefined) return head;
    const zooms = kernelSpans(p, module).map(([phase, from, to]) => make("button", { type: "button", "data-zoom": phase, click: () => zoomToSpan(from, to) }, "Zoom to its " + phase));
    return [...head, make("div", { class: "zooms" }, ...zooms),
      ...compareLayers(p, module, arena, (text, path) => this.link(text, { module: path })), ...this.unit(module)];
  }

  // When the unit that a module is in is gathered, freed and reduced.
  unit(module) {
    const { program: p } = this.state, found = unitEvents(p, module), freed = e => e < 0 ? [] : ["freed after ", this.eventLink(e), ", at " + timeText(p.end[e])];
    if (!found || !found.events.length) return [];
    return [make("h3", {}, "Its unit, ", named(found.unit || "(model)")), make("table", { id: "unit" }, make("tbody", {}, ...found.events.map(({ e, freed: last }) => make("tr", { "data-event": p.id(e), "data-freed": last < 0 ? "" : p.id(last) },
      make("td", {}, this.eventLink(e), " " + p.text(e, OP) + ", " + p.plan.phases[p.phase[e]]), make("td", {}, timeText(p.start[e]) + " to " + timeText(p.end[e])), make("td", {}, ...freed(last))))))];
  }

  // What a screen reader says of a selection, and the tip at the pointer.
  sentence(selection) {
    const { program: p, plan } = this.state;
    if (isScope(selection)) return make("p", {}, ...this.scopeName(selection)).textContent + ", " + timeText(new Summary(p, selection).span().reduce((a, z) => z - a));
    if (selection.event !== undefined) {
      const e = selection.event, waits = p.waits(e).map(w => p.id(w));
      return p.id(e) + ", " + p.text(e, OP) + ", " + plan.phases[p.phase[e]] + " " + (p.text(e, MODULE) || plan.model) + ", on " + plan.stream_names[p.stream[e]] + ", at " + timeText(p.start[e]) +
        ", takes " + timeText(p.end[e] - p.start[e]) + (p.actual ? ", took " + timeText(p.actual.took[e]) + " in the run" : "") + (waits.length ? ", waits for " + waits.join(", ") : "");
    }
    const s = plan.storages[selection.storage];
    return s.name + ", " + plan.classes[s.cls] + " of " + (s.owner || plan.model) + ", " + bytesText(s.size) + " at " + addressText(s.offset);
  }
}
