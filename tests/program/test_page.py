"""The page of a plan (`inspect --format html`) in a browser: what it shows is what `--format json` says; it is found, zoomed, clicked, folded and
unfolded by pointer and keyboard; names run nothing; it is quick at 100,000 events.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import json
import os
import random
import re
import shutil

from browser import HOSTILE, Browser, accessible, near, quiet
from harness import ROOT, SHARDC, build, check, command, llama3_with, long, scratch, shardc

MODELS = {
    "gpt2": ["gpt2.lua", "--world", "4"],
    "transformer": ["transformer.lua", "--world", "2"],
    "llama3": ["llama3.lua", "--set", "size=70b", "--set", "precision=bf16", "--world", "64", "--device", "h200"],
}


def written(folder, args):
    """(path of the page, what it is made of)"""
    source = [os.path.join(ROOT, "models", args[0]), *args[1:]]
    page = os.path.join(folder, "plan.html")
    shardc("inspect", *source, "--format", "html", "-o", page)
    return page, source


def totals(b, plan):
    """How many figures of the head were compared."""
    shown = b.run("Object.fromEntries([...document.querySelectorAll('#totals dd')].map(e => [e.dataset.total, [Number(e.dataset.value), e.textContent]]))")
    p, device = plan["prediction"], plan["device"]
    want = {"peak": plan["peak"]["bytes"], "bound": plan["peak"]["bound"]}
    for key in ("step_us", "exposed_us", "mfu_full_attention", "mfu_causal_attention", "tokens_per_second"):
        if p[key]:
            want[key] = p[key]
    if p["host_bytes"]:
        want["host"] = p["host_bytes"]
    if device["usable_bytes"]:
        want["spare"] = device["usable_bytes"] - sum(x["bytes"] for x in p["library"]) - p["arena_bytes"]
    check(set(shown) == set(want), "totals are %s, wanted %s" % (sorted(shown), sorted(want)))
    for key, value in want.items():
        check(near(shown[key][0], value), "%s is shown as %s, JSON says %s" % (key, shown[key], value))
    texts = {"mfu_causal_attention": "%.2f" % p["mfu_causal_attention"], "exposed_us": "%.1f %%" % (100 * p["exposed_us"] / p["step_us"])}
    for key, text in texts.items():
        check(text in shown[key][1], "%s is shown as %s, wanted %s" % (key, shown[key], text))
    times = b.run("document.querySelector('#subtitle').textContent").split("times: ")[1]
    check(times.startswith(p["time_source"] + ", ") and "%.0f" % (100 * p["time_off"] if p["time_off"] < 1 else 1 + p["time_off"]) in times, "times: %s" % times)
    return len(want)


def live_at(plan, program, e):
    """Bytes alive while an event is issued: by class, and by class and owner without numbers."""
    position = {x["id"]: i for i, x in enumerate(program["events"])}
    classes, owners = {}, {}
    for s in plan["storages"]:
        if s["arena"] != "device" or s.get("program", program["name"]) != program["name"]:
            continue
        if "program" in s and not position[s["first"]] <= e <= position[s["last"]]:
            continue
        classes[s["class"]] = classes.get(s["class"], 0) + s["size"]
        owner = s["class"], ".".join("*" if p.isdigit() else p for p in s["owner"].split("."))
        owners[owner] = owners.get(owner, 0) + s["size"]
    return classes, owners


LIVE = """(() => { document.querySelectorAll('#live details[data-class]').forEach(d => { d.open = true; d.dispatchEvent(new Event('toggle')); });
  const bytes = e => Number(e.querySelector('summary [data-bytes]').dataset.bytes);
  return { total: Number(document.querySelector('#live-total').dataset.bytes),
    classes: [...document.querySelectorAll('#live details[data-class]')].map(d => [d.dataset.class, bytes(d)]),
    owners: [...document.querySelectorAll('#live details[data-owner]')].map(d => [d.closest('[data-class]').dataset.class, d.dataset.owner, bytes(d)]) }; })()"""


MODULES = """(() => { for (let n = -1, all; (all = document.querySelectorAll('#live details[data-module]')).length !== n; n = all.length) all.forEach(d => { d.open = true; d.dispatchEvent(new Event('toggle')); });
  return Object.fromEntries([...document.querySelectorAll('#live [data-module]')].map(d => [d.dataset.module, Number(d.querySelector('[data-bytes]').dataset.bytes)])); })()"""


def prefixes(owner):
    """The modules that "model.layers.*.mlp" is in, and itself; layers stand for their list."""
    names = owner.replace(".*", "\0*").split(".") if owner else ["(model)"]
    return [".".join(names[:k + 1]).replace("\0", ".") for k in range(len(names))]


def programs(b, plan):
    """Every program: its figures, and the live set at its peak, by class and owner."""
    for i, p in enumerate(plan["programs"]):
        b.run("document.querySelector('#program').value = %d; document.querySelector('#program').dispatchEvent(new Event('change'))" % i)
        b.settle()
        shown = b.run("[...document.querySelectorAll('#program-figures [data-bytes]')].map(e => Number(e.dataset.bytes))")
        event = next((k for k, e in enumerate(p["events"]) if e["id"] == p["peak_event"]), None)
        in_use = [] if event is None else [sum(live_at(plan, p, event)[0].values())]
        check(shown == [p["peak"][0], *in_use, *([p["bound"][0]] if p["bound"][0] else [])], "%s: arena, most in use and bound are shown as %s" % (p["name"], shown))
        check("%s events" % format(len(p["events"]), ",") in b.run("document.querySelector('#program-figures').textContent"), "the count of events of " + p["name"])
        if not p["events"]:
            continue
        at = next(k for k, e in enumerate(p["events"]) if e["id"] == p["peak_event"])
        live, (classes, owners) = b.run(LIVE), live_at(plan, p, at)
        check(dict(live["classes"]) == classes, "%s: alive at the peak are %s, JSON says %s" % (p["name"], live["classes"], classes))
        check({(c, o): n for c, o, n in live["owners"]} == owners and live["total"] == sum(classes.values()), "%s: owners at the peak differ from JSON's" % p["name"])
        if p["name"] == plan["peak"]["program"]:
            check(dict(live["classes"]) == plan["peak"]["live"], "the live set at the plan's peak is %s" % live["classes"])
        texts = b.run("(p => p.peakText && [p.peakText, [p.roomLeft, p.roomY, p.width, p.roomY + 13]])(shardc.painter)")
        check(not texts or texts[1][0] is None or any(texts[k][2 + i] <= texts[1 - k][i] for k in (0, 1) for i in (0, 1)), "%s: the peak's text stands upon that of the room: %s" % (p["name"], texts))
        beyond = b.run("(e => e ? Number(e.dataset.bytes) : 0)(document.querySelector('#beyond'))")
        check(beyond == p["peak"][0] - live["total"], "%s: the arena is shown as %d B larger than the live set" % (p["name"], beyond))
        modules = {}
        for (_, owner), n in owners.items():
            for path in prefixes(owner):
                modules[path] = modules.get(path, 0) + n
        check(b.run(MODULES) == modules, "%s: bytes by module at the peak are %s, JSON says %s" % (p["name"], b.run(MODULES), modules))


def drawn(b, plan):
    """The curve's figures at all moments that are asked for, and pixels: an event has its colour where its time is, and the bytes of the peak reach as high as
    the axis says."""
    p = next(p for p in plan["programs"] if p["name"] == "micro")
    b.run("shardc.show(%d)" % plan["programs"].index(p))
    b.click_on("#to-all")
    for e in random.Random(5).sample(range(len(p["events"])), 40):
        of, total = b.run("(() => { const p = shardc.state.program, m = p.memory(0), n = shardc.state.plan.classes.length; return [shardc.state.plan.classes.map((c, i) => [c, m.of[%d * n + i]]).filter(x => x[1]), m.total[%d]]; })()" % (e, e))
        classes, _ = live_at(plan, p, e)
        check(dict(of) == classes and total == sum(classes.values()), "the curve has %s at %s, JSON says %s" % (of, p["events"][e]["id"], classes))
    longest = sorted(range(len(p["events"])), key=lambda i: -p["events"][i]["duration_us"])[:3]
    pixel = "const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true }); [copy.canvas.width, copy.canvas.height] = [innerWidth, innerHeight]; copy.drawImage(shardc.painter.canvas, 0, 0); const at = (x, y) => '#' + [...copy.getImageData(Math.round(x), Math.round(y - shardc.painter.top), 1, 1).data].slice(0, 3).map(v => v.toString(16).padStart(2, '0')).join('');"
    for e in longest:
        b.run("shardc.view(%r, %r)" % (p["events"][e]["start_us"] - 2 * p["events"][e]["duration_us"], p["events"][e]["start_us"] + 3 * p["events"][e]["duration_us"]))
        b.settle()
        got = b.run("(() => { %s const p = shardc.painter, s = shardc.state.program, [a, z, y] = p.box(%d); return [p.fills[s.phase[%d]][s.kind[%d]], at(a + 1, y + 4), at(z - 3, y + 4), at(z + 1, y + 4)]; })()" % (pixel, e, e, e))
        check(got[0] == got[1] == got[2], "%s is drawn as %s" % (p["events"][e]["id"], got))
    b.click_on("#to-all")
    b.run("document.querySelector('#scroll').scrollTop = 1e6")
    b.settle()
    got = b.run("(() => { %s const p = shardc.painter, s = shardc.state.program, { top } = p.memoryScale(), x = p.x(p.timeOf(s, s.peak_event)), y = p.memoryAt + 170 * (1 - %d / top); return [at(x, y + 2), at(x, y - 11), p.classes, p.colour.ground]; })()" % (pixel, sum(plan["peak"]["live"].values())))
    check(got[0] in got[2] and got[1] not in got[2], "at the peak the curve's pixels are %s" % got[:2])


EVENT = """(() => { shardc.select({ event: %d }, true);
  const fact = k => { const e = document.querySelector('#selection [data-fact="' + k + '"]'); return e && (e.querySelector('[data-value]') ? Number(e.querySelector('[data-value]').dataset.value) : e.textContent); };
  return { head: document.querySelector('#selection h2').textContent, said: document.querySelector('#said').textContent, start: fact('starts'), takes: fact('takes'), idle: fact('idle before it'), flops: fact('arithmetic'),
    bytes: fact('on the wire') ?? fact('copied') ?? fact('memory traffic'), module: fact('module'), stream: fact('stream'), source: fact('Lua line'),
    accesses: [...document.querySelectorAll('#selection tr[data-storage]')].map(r => [r.dataset.storage, Number(r.querySelector('[data-bytes]').dataset.bytes), Number(r.querySelector('[data-address]').dataset.address), r.textContent]),
    sums: Object.fromEntries([...document.querySelectorAll('#selection h3[data-accesses]')].map(h => [h.dataset.accesses, Number(h.querySelector('[data-bytes]').dataset.bytes)])),
    starter: document.querySelector('#starter button') && document.querySelector('#starter button').textContent, over: [...document.querySelectorAll('#waits li.dim')].map(li => li.dataset.event),
    waits: [...document.querySelectorAll('#waits li')].map(li => [li.dataset.event, [...li.querySelectorAll('.name')].map(e => e.textContent).join('')]),
    frees: [...document.querySelectorAll('#frees button')].map(e => e.textContent) }; })()"""


def events(b, plan, source, count):
    """Everything shown of some events; why they wait is what `--columns waits,why` says."""
    index = next(i for i, p in enumerate(plan["programs"]) if p["name"] == "micro")
    p = plan["programs"][index]
    why = {}
    for line in shardc("inspect", *source, "--program", "micro", "--columns", "waits,why").splitlines():
        m = re.search("^(\\S+)  wait .*  why (.*)$", line)
        for reason in re.split(r"\. (?=\w+: )", m[2]) if m else []:
            why.setdefault(m[1], []).append(reason.split(": ", 1))
    b.run("shardc.show(%d)" % index)
    rng = random.Random(7)
    waiting = [i for i, e in enumerate(p["events"]) if e["waits"]]
    chosen = rng.sample(range(len(p["events"])), count) + rng.sample(waiting, min(count, len(waiting)))
    ends, idle = {}, {}
    for e in sorted(p["events"], key=lambda e: e["start_us"]):
        idle[e["id"]] = e["start_us"] - ends.get(e["stream"], 0)
        ends[e["stream"]] = e["start_us"] + e["duration_us"]
    shapes = 0
    for i in chosen:
        e, shown = p["events"][i], b.run(EVENT % i)
        check(shown["head"] == e["id"] + "  " + e["op"], "the head of %s is %s" % (e["id"], shown["head"]))
        check(shown["said"].startswith(e["id"] + ", " + e["op"]), "a screen reader hears of %s: %s" % (e["id"], shown["said"]))
        want = {"start": e["start_us"], "takes": e["duration_us"], "flops": e["flops"] or None, "bytes": e["bytes"] or None}
        for key, value in want.items():
            check(shown[key] == value if value is None else near(shown[key], value), "%s of %s is shown as %s, JSON says %s" % (key, e["id"], shown[key], value))
        check((shown["module"], shown["stream"], shown["source"]) == (e["module"] or "(model)", e["stream"], e.get("source")), "%s is shown with %s" % (e["id"], shown))
        check(abs((shown["idle"] or 0) - idle[e["id"]]) < .006, "before %s its stream is idle for %s, shown as %s" % (e["id"], idle[e["id"]], shown["idle"]))
        accesses, sums = [], {}
        for kind in ("reads", "writes"):
            for s in dict.fromkeys(s for s, _, _ in e[kind]):
                ranges = [(at, at + n) for k, at, n in e[kind] if k == s]
                cuts = sorted({x for r in ranges for x in r})
                size = sum(z - a for a, z in zip(cuts, cuts[1:]) if any(r[0] <= a and z <= r[1] for r in ranges))
                accesses.append([plan["storages"][s]["name"], size, plan["storages"][s]["offset"] + cuts[0]])
                sums[kind] = sums.get(kind, 0) + size
        check([x[:3] for x in shown["accesses"]] == accesses and shown["sums"] == sums, "%s reads and writes %s, JSON says %s" % (e["id"], shown["accesses"], accesses))
        before = [x for x in p["events"] if x["stream"] == e["stream"] and x["start_us"] < e["start_us"] or x["id"] in e["waits"]]
        at = max((x["start_us"] + x["duration_us"] for x in before), default=None)
        starters = [x["id"] for x in before if x["start_us"] + x["duration_us"] > at - 1e-6]
        check(shown["starter"] in starters if before else shown["starter"] is None, "%s starts when %s ends, JSON says one of %s" % (e["id"], shown["starter"], starters))
        over = sorted(x["id"] for x in before if x["id"] in e["waits"] and x["start_us"] + x["duration_us"] < at - 1e-6)
        check(sorted(shown["over"]) == over, "%s waits for %s, which are over before, JSON says %s" % (e["id"], shown["over"], over))
        check(shown["waits"] == why.get(e["id"], []), "%s waits for %s, inspect says %s" % (e["id"], shown["waits"], why.get(e["id"])))
        freed = [s["name"] for s in plan["storages"] if s.get("program") == "micro" and s["last"] == e["id"]]
        check(shown["frees"] == freed[:12], "%s frees %s, JSON says %s" % (e["id"], shown["frees"], freed))
        shapes += sum(bool(re.search(r" (fp32|bf16|int32|fp16)\[[\d,]*\]", x[3])) for x in shown["accesses"])
    check(shapes > count, "%d shapes are shown" % shapes)
    return len(chosen)


def sums(b, plan):
    """Of each program: time by op is the sum over its events; exposed communication by cause adds up to the whole, and is what `diff` says."""
    count = 0
    with open(os.path.join(scratch("page"), "sums.plan.json"), "w") as f:
        json.dump(plan, f)
    d = json.loads(shardc("diff", f.name, f.name, "--format", "json"))
    for i, p in enumerate(plan["programs"]):
        b.run("shardc.show(%d)" % i)
        b.run("document.querySelectorAll('#sums .link').forEach(e => e.click())")
        shown = b.run("Object.fromEntries([...document.querySelectorAll('#sums table')].map(t => [t.dataset.table, [...t.querySelectorAll('tbody tr')].map(r => [r.dataset.sum, Number(r.dataset.count), Number(r.dataset.us), r.cells[1].textContent])]))")
        ops = {}
        for e in p["events"]:
            n, us = ops.get(e["op"], (0, 0))
            ops[e["op"]] = n + 1, us + e["duration_us"]
        rows = shown.get("ops", [])
        check([r[2] for r in rows] == sorted((r[2] for r in rows), reverse=True) and {r[0] for r in rows} == set(ops), "%s: ops are %s" % (p["name"], rows))
        check(all(n == ops[op][0] and near(us, ops[op][1]) and text == format(n, ",") for op, n, us, text in rows), "%s: time by op is %s, JSON says %s" % (p["name"], rows, ops))
        exposed = shown.get("exposed", [])
        check(abs(sum(r[2] for r in exposed) - p["exposed_us"]) <= 1e-4 + 1e-6 * p["exposed_us"], "%s: exposed are %s, JSON says %s" % (p["name"], exposed, p["exposed_us"]))
        if p["name"] == "micro":
            check({r["name"] for r in d["exposed_modules"]} == {r[0] for r in exposed}, "exposed are %s, diff says %s" % (exposed, d["exposed_modules"]))
            check(all(near(next(r["a"] for r in d["exposed_modules"] if r["name"] == x[0]), x[2]) for x in exposed), "exposed are %s, diff says %s" % (exposed, d["exposed_modules"]))
        count += len(rows) + len(exposed)
    return count


def head(b):
    return b.run("document.querySelector('#selection h2') && document.querySelector('#selection h2').textContent")


def by_hand(b, plan):
    """Search, keys, wheel, drag, clicks, folding."""
    p = next(p for p in plan["programs"] if p["name"] == "micro")
    wanted = next(e for e in p["events"] if e["stream"] == "compute" and e["waits"] and e["phase"] == "backward")
    b.click_on("#to-all")
    b.click_on("#canvas")
    b.press("/")
    b.type(wanted["id"])
    b.press("Enter")
    check(head(b).startswith(wanted["id"] + "  "), "searching for %s selects %s" % (wanted["id"], head(b)))
    b.search("backward")
    found = [e for e in p["events"] if "backward" in " ".join((e["id"], e["op"], e["module"], e["phase"])).lower()]
    check(near(float(b.run("document.querySelector('#found-title').dataset.us")), sum(e["duration_us"] for e in found)), "what is found takes other times than in JSON")
    check(b.run("document.querySelector('#results li').textContent.split('  ')[1]") == "backward", "a result does not begin with its phase")
    b.search(wanted["id"])
    b.run("document.querySelector('#canvas').focus()")
    view = lambda: b.run("[shardc.state.t0, shardc.state.t1]")
    wide = lambda v: v[1] - v[0]
    b.press("f")
    t = view()
    check(t[0] <= wanted["start_us"] and t[1] >= wanted["start_us"] + wanted["duration_us"] and wide(t) < 3 * wanted["duration_us"] + 1, "F shows %s" % t)
    # a click on an event selects it; on a rectangle of memory, the storage
    x0, x1, y = b.run("shardc.painter.box(shardc.state.selection.event)")
    left, top = b.run("(() => { const r = document.querySelector('#canvas').getBoundingClientRect(); return [r.x, r.y - document.querySelector('#scroll').scrollTop]; })()")
    b.press("Escape")
    check(head(b) is None, "Escape leaves %s selected" % head(b))
    b.click(left + (x0 + x1) / 2, top + y + 12)
    check(head(b).startswith(wanted["id"] + "  "), "a click selects %s, not %s" % (head(b), wanted["id"]))
    for key, then in (("d", lambda a, z: z[0] > a[0]), ("a", lambda a, z: z[0] < a[0]), ("w", lambda a, z: wide(z) < wide(a)), ("s", lambda a, z: wide(z) > wide(a)),
                      ("ArrowRight", lambda a, z: z[0] > a[0]), ("ArrowLeft", lambda a, z: z[0] < a[0])):
        before = view()
        b.press(key)
        check(then(before, view()), "key %s takes %s to %s" % (key, before, view()))
    before = view()
    b.mouse("mouseWheel", left + 500, top + 100, deltaX=0, deltaY=-120, modifiers=2)
    b.settle()
    check(wide(view()) < wide(before), "the wheel does not zoom")
    before = view()
    b.mouse("mousePressed", left + 600, top + 60, button="left", clickCount=1)
    b.mouse("mouseMoved", left + 500, top + 60, button="left", buttons=1)
    b.mouse("mouseReleased", left + 500, top + 60, button="left", clickCount=1)
    b.settle()
    check(view()[0] > before[0] and near(wide(view()), wide(before)), "a drag takes %s to %s" % (before, view()))
    # the events of a stream, one after the other
    order = sorted((e for e in p["events"] if e["stream"] == "compute"), key=lambda e: e["start_us"])
    at = order.index(wanted)
    for key, e in ((".", order[at + 1]), (",", wanted)):
        b.press(key)
        check(head(b).startswith(e["id"] + "  "), "%s goes to %s, not to %s" % (key, head(b), e["id"]))
    b.press("ArrowDown")
    check(b.run("shardc.state.plan.stream_names[shardc.state.program.stream[shardc.state.selection.event]]") != "compute", "the arrow does not go to another stream")
    # what the compute stream waits for longest: over the red line a tip says it, and a click selects the event that waits; a key hides the tip
    ends = {}
    for e in sorted(p["events"], key=lambda e: e["start_us"]):
        e["idle"] = e["start_us"] - ends.get(e["stream"], 0)
        ends[e["stream"]] = e["start_us"] + e["duration_us"]
    held = max((e for e in p["events"] if e["stream"] == "compute" and e["waits"]), key=lambda e: e["idle"])
    by = max((e for e in p["events"] if e["id"] in held["waits"]), key=lambda e: e["start_us"] + e["duration_us"])
    b.run("shardc.select(null); shardc.view(%r, %r)" % (held["start_us"] - held["idle"], held["start_us"]))
    b.settle()
    b.mouse("mouseMoved", left + 150 + (b.size[0] - 150 - 400) / 2, top + b.run("shardc.painter.streamRows[0].y") + 13)
    b.settle()
    tip = b.run("document.querySelector('#tip').textContent")
    check(tip.startswith("compute waits ") and " before %s, until %s has ended: %s " % (held["id"], by["id"], by["op"]) in tip, "over a red line the tip says: " + tip)
    right = b.run("[document.querySelector('#tip').getBoundingClientRect().right, document.querySelector('aside').getBoundingClientRect().left]")
    check(right[0] <= right[1], "the tip covers the panels: %s" % right)
    b.click(left + 150 + (b.size[0] - 150 - 400) / 2, top + b.run("shardc.painter.streamRows[0].y") + 13)
    check(head(b).startswith(held["id"] + "  "), "a click on a red line selects %s" % head(b))
    b.press(",")
    check(b.run("document.querySelector('#tip').hidden"), "a key leaves the tip")
    # Escape in the results goes to the timeline, where the next key is one of its own
    b.press("/")
    b.run("document.querySelector('#search').value = ''")
    b.type(held["id"])
    b.press("ArrowDown")
    b.press("Escape")
    b.press("0")
    check(b.run("document.activeElement.id === 'canvas' && document.querySelector('#search').value") == held["id"], "after Escape in the results a key is typed into the box")
    b.search("")
    # the peak, what is under the pointer there, and a storage
    b.press("0")
    b.press("p")
    check(head(b).startswith(plan["peak"]["event"] + "  "), "P goes to %s" % head(b))
    b.press("0")
    b.run("document.querySelector('#scroll').scrollTop = 1e6")
    b.settle()
    top = b.run("document.querySelector('#canvas').getBoundingClientRect().y - document.querySelector('#scroll').scrollTop")
    x, y = b.run("[shardc.painter.x(shardc.painter.timeOf(shardc.state.program, shardc.state.program.peak_event)), shardc.painter.memoryAt + 150]")
    b.mouse("mouseMoved", left + x, top + y)
    b.settle()
    b.settle()
    live = b.run(LIVE)
    check(dict(live["classes"]) == plan["peak"]["live"], "alive at the pointer, at the peak: %s, JSON says %s" % (live["classes"], plan["peak"]["live"]))
    tip = b.run("document.querySelector('#tip').textContent")
    check("alive at " + plan["peak"]["event"] in tip, "the tip says " + tip)
    largest = max((s for s in plan["storages"] if s.get("program") == "micro" and s["arena"] == "device"), key=lambda s: s["size"])
    b.run("(() => { const p = shardc.state.program, i = %d; shardc.view(p.from[i] - 1, p.to[i] + 1); })()" % largest["id"])
    b.settle()
    x, y = b.run("(() => { const p = shardc.state.program, s = shardc.state.plan.storages[%d], k = shardc.painter.mapHeight / shardc.state.plan.arena_bytes[0]; return [shardc.painter.x((p.from[s.index] + p.to[s.index]) / 2), shardc.painter.addressesAt + (s.offset + s.size / 2) * k]; })()" % largest["id"])
    b.mouse("mouseMoved", left + x, top + y)
    b.settle()
    tip = b.run("document.querySelector('#tip').textContent")
    check(tip.startswith(largest["name"] + ", " + largest["class"]), "over %s the tip says %s" % (largest["name"], tip))
    b.click(left + x, top + y)
    check(head(b) == largest["name"] and len(b.run("document.querySelector('#freeing').textContent")) > 20, "a click on %s selects %s" % (largest["name"], head(b)))
    # in a low window the stage scrolls beneath the canvas
    b.ask("Emulation.setDeviceMetricsOverride", width=b.size[0], height=600, deviceScaleFactor=1, mobile=False)
    b.settle()
    b.run("document.querySelector('#scroll').scrollTop = 1e6")
    b.settle()
    check(b.run("document.querySelector('#scroll').scrollTop > 100 && document.querySelector('#canvas').getBoundingClientRect().y === document.querySelector('#scroll').getBoundingClientRect().y"), "the canvas does not stay where it is seen")
    b.ask("Emulation.setDeviceMetricsOverride", width=b.size[0], height=b.size[1], deviceScaleFactor=1, mobile=False)
    b.settle()
    # folding
    rows = lambda: b.run("shardc.painter.moduleRows.map(r => [r.label, r.note])")
    folded = rows()
    alike = next(note for _, note in folded if note)
    b.click_on("#rows button[data-row^='*']")
    opened = rows()
    check(len(opened) == len(folded) + int(alike[1:]), "unfolding %s takes %d rows to %d" % (alike, len(folded), len(opened)))
    b.click_on("#rows button[data-row^='*'] ~ button[data-row]:not([data-row^='*'])")
    check(len(rows()) > len(opened), "a layer does not open")
    b.click_on("#rows button[data-row^='*'] ~ button[data-row]:not([data-row^='*'])")
    b.click_on("#rows button[data-row^='*']")
    check(rows() == folded, "folding again leaves %s" % rows())


# ── accessibility ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def on_paper(b):
    """How many figures were found again in the PDF."""
    b.run("shardc.select({ event: shardc.state.program.peak_event }, true)")
    b.settle()
    figures = b.run("[...document.querySelectorAll('#totals dd, #selection dd.name, #live summary .row > :last-child, #rows .title')].map(e => e.textContent)")
    theme = b.run("document.documentElement.dataset.theme")
    text, pages, drawn = b.printed()
    missing = [t for t in figures if t not in text and t not in "".join(text)]
    check(len(figures) > 12 and not missing and drawn and pages < 8, "on paper (%d pages, timeline %s, %d figures) these are missing: %s" % (pages, drawn, len(figures), missing[:5]))
    check(b.run("document.documentElement.dataset.theme") == theme, "printing changes the theme")
    return len(figures)


def page_of(name):
    with Browser() as b:
        page, source = written(scratch("page"), MODELS[name])
        plan = json.loads(shardc("inspect", *source, "--format", "json"))
        b.open(page)
        figures = totals(b, plan)
        programs(b, plan)
        drawn(b, plan)
        summed = sums(b, plan)
        compared = events(b, plan, source, 12)
        by_hand(b, plan)
        texts = accessible(b, "shardc.select({ event: shardc.state.program.peak_event }, true)")
        printed = on_paper(b)
        quiet(b, page)
    return "%d totals, %d programs, %d events, %d sums, %d texts, %d figures on paper; %d KB" % (figures, len(plan["programs"]), compared, summed, texts, printed, os.path.getsize(page) >> 10)


def test_gpt2():
    return page_of("gpt2")


def test_transformer():
    return page_of("transformer")


def test_llama3_64_ranks():
    return page_of("llama3")


def test_what_would_free_activations():
    """The page names the module whose recomputation frees an activation, and how much all such modules free: the peak of a plan that recomputes them says the
    same, within what one module's backward brings back."""
    folder, options = scratch("page"), ["--set", "size=8b", "--set", "precision=bf16", "--set", "seq=8192", "--world", "8", "--device", "h200"]
    page, source = written(folder, ["llama3.lua", *options])
    plan = json.loads(shardc("inspect", *source, "--format", "json"))
    p, storages = next(p for p in plan["programs"] if p["name"] == "micro"), plan["storages"]
    at, users = {e["id"]: i for i, e in enumerate(p["events"])}, {}
    for e in p["events"]:
        for s in {s for s, _, _ in e["reads"] + e["writes"]}:
            users.setdefault(s, []).append(e["module"].split("."))
    phase = lambda i: p["events"][at[i]]["phase"]
    kept = {}  # of each storage: the module around all that use it
    for s in storages:
        if s.get("program") == "micro" and s["class"] == "activations" and (phase(s["first"]), phase(s["last"])) == ("forward", "backward") and at[s["first"]] <= at[p["peak_event"]] <= at[s["last"]]:
            kept[s["id"]] = os.path.commonprefix(users[s["id"]])
    with Browser() as b:
        b.open(page)
        for module in ("mlp", "self_attn"):
            wanted = sum(storages[s]["size"] for s, path in kept.items() if len(path) > 3 and path[:2] == ["model", "layers"] and path[3] == module)
            one = next(s for s, path in kept.items() if path[3:] == [module])
            b.run("shardc.select({ storage: %d }, true)" % one)
            said = b.run("document.querySelector('#freeing').textContent")
            check("in model.layers.%s.%s: recompute" % (kept[one][2], module) in said and "model.layers.*.%s, 32 modules, frees" % module in said, "what would free %s: %s" % (storages[one]["name"], said))
            shown, brought = b.run("[document.querySelector('#freeing [data-frees]').dataset.frees, document.querySelector('#freeing [data-bytes]').dataset.bytes].map(Number)")
            check(shown == wanted and brought == wanted // 32, "recomputing %s frees %s, JSON says %s" % (module, shown, wanted))
            wrapped = llama3_with(folder, "    nn.checkpoint_wrapper(block.%s) nn.fully_shard(block, policy)\n" % module)
            less = sum(plan["peak"]["live"].values()) - sum(json.loads(shardc("predict", wrapped, *options, "--format", "json"))["peak"]["live"].values())
            check(abs(less - shown) <= brought, "recomputing %s frees %d B by the page, %d B by its plan" % (module, shown, less))
        shared = next(s for s, path in kept.items() if path == ["model", "layers"])
        b.run("shardc.select({ storage: %d }, true)" % shared)
        check("several modules use it" in b.run("document.querySelector('#freeing').textContent"), "what would free the input of a layer")
        quiet(b, page)
    return "%d activations" % len(kept)


def test_size():
    """Pages that people send: Llama-3 8B on eight ranks, 405B on 1024 and, with recomputation, on 512."""
    sizes = []
    for size, args in (("8b", ["--world", "8", "--device", "h200"]), ("405b", ["--world", "1024", "--device", "h100"]), ("405b", ["--world", "512", "--device", "h200", "--set", "seq=8192", "--set", "recompute=full"])):
        page, _ = written(scratch("page"), ["llama3.lua", "--set", "size=" + size, "--set", "precision=bf16", *args])
        sizes.append(os.path.getsize(page))
        check(sizes[-1] < 5e6, "%s: %d bytes" % (size, sizes[-1]))
    return ", ".join("%d KB" % (n >> 10) for n in sizes)


@long
def test_many_events():
    """100,000 events: a page without what stands behind its script, which the browser reads later, is painted first. Milliseconds are printed (0.4 s of
    processor time until the first paint where this was written); what they must not exceed is far above, so that a slow machine fails nothing."""
    page, _ = written(scratch("page"), ["gpt2.lua", "--world", "2", "--set", "layers=4000", "--set", "dim=64", "--set", "heads=2", "--set", "seq=64"])
    begin = page.replace("plan.html", "begin.html")
    with open(page) as f, open(begin, "w") as g:
        g.write(f.read().partition('<script id="details-')[0] + "</body></html>")

    def opened(path):
        """Milliseconds until it was painted, of processor time for all that was opened."""
        with Browser() as b:
            b.ask("Performance.enable", timeDomain="threadTicks")
            b.open(path)
            metrics = {m["name"]: m["value"] for m in b.ask("Performance.getMetrics")["metrics"]}
            return b.run("shardc.timing.first"), 1e3 * metrics["TaskDuration"]
    begins = min(opened(begin)[1] for _ in range(3))  # other load only adds to it
    first, whole = opened(page)
    with Browser() as b:
        b.ask("Performance.enable", timeDomain="threadTicks")
        b.open(page)
        spent = lambda: 1e3 * next(m["value"] for m in b.ask("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")
        count = b.run("shardc.state.program.n")
        check(count > 100000, "only %d events" % count)
        frames, pans = [], []
        for wide in (1, .1, .001):
            b.run("shardc.view(0, shardc.state.program.duration * %g)" % wide)
            b.settle()
            b.run("shardc.timing.frames.length = 0")
            before = spent()
            b.run("new Promise(done => { let n = 30; const next = () => { if (!n--) return done(); shardc.view(shardc.state.t0 + (shardc.state.t1 - shardc.state.t0) / 40, shardc.state.t1 + (shardc.state.t1 - shardc.state.t0) / 40); requestAnimationFrame(next); }; next(); })")
            frames += b.run("shardc.timing.frames")
            pans.append((spent() - before) / 30)
        quiet(b, page)
    frames.sort()
    check(begins < 10000 and max(pans) < 1000, "first paint after %.0f ms of processor time, frames of pans take %s ms of it" % (begins, pans))
    check(first < 20000 and frames[-1] < 2000, "first paint %.0f ms, slowest frame %.0f ms" % (first, frames[-1]))
    return "%d events: first paint after %.0f ms (%.0f ms of processor time, %.0f ms for the whole page), frames of a pan %.1f ms (%.1f ms of processor time), slowest %.1f ms" % (count, first, begins, whole, frames[len(frames) // 2], max(pans), frames[-1])


# ── hostile names ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_hostile_names():
    """Every name of a plan, replaced by each of these: shown as text. A plan's names hold no line end; its
    options may."""
    folder = scratch("page")
    clean = shardc("inspect", os.path.join(ROOT, "models", "mlp.lua"), "--world", "2", "--format", "json")
    with Browser() as b:
        for k, text in enumerate(HOSTILE):
            plan, name = json.loads(clean), text.replace("\n", " ")
            plan["model"] = name
            plan["options"] = {name: text}
            p = next(p for p in plan["programs"] if p["name"] == "micro")
            for e in p["events"]:
                e["op"], e["module"], e["source"] = name, name, name + ":7"
            for u in plan["units"]:
                u["path"] = name
            for s in plan["storages"]:
                s["name"], s["owner"] = name + str(s["id"]), name
            path, page = os.path.join(folder, "%d.plan.json" % k), os.path.join(folder, "%d.html" % k)
            with open(path, "w") as f:
                json.dump(plan, f)
            rc, _, err = command([SHARDC, "inspect", path, "--format", "html", "-o", page])
            check(rc == 0, "exit %d: %s" % (rc, err[:400]))
            b.open(page)
            check(b.run("document.querySelector('h1').textContent") == name, "the model's name is shown as " + b.run("document.querySelector('h1').textContent")[:200])
            check(name + "=" + text in b.run("document.querySelector('#subtitle').textContent"), "an option is not shown as it is: " + name[:60])
            for i in (0, len(p["events"]) - 1):
                shown = b.run(EVENT % i)
                check(shown["module"] == name and shown["source"] == name + ":7", "a module is shown as %s" % shown["module"][:200])
            b.run("shardc.select({ storage: 0 }, true)")
            check(head(b) == name + "0", "a storage is shown as " + head(b)[:200])
            b.run(LIVE)
            b.search("<")
            b.mouse("mouseMoved", 400, 300)
            b.settle()
            check(b.run("window.ran === undefined && document.images.length === 0 && document.scripts.length === 3 + 2 * shardc.state.plan.programs.length"), "a name became markup: " + name[:60])
            check(b.run("document.documentElement.scrollWidth <= innerWidth"), "a long name makes the page wider than the window: " + name[:60])
            seen = b.run("(() => { const r = document.querySelector('#scroll').getBoundingClientRect(), s = document.querySelector('#bar').getBoundingClientRect(); return [r.height, innerHeight - r.top, s.bottom]; })()")
            check(seen[0] > 250 and seen[1] > 250 and seen[2] < 600, "a long name leaves no room for the timeline: %s: %s" % (seen, name[:60]))
            quiet(b, page)
        # a model in folders of such names, whose path every event shows
        model = os.path.join(folder, "<", "script><script>window.ran = 1<", "script>", "mlp.lua")
        os.makedirs(os.path.dirname(model))
        shutil.copy(os.path.join(ROOT, "models", "mlp.lua"), model)
        page = os.path.join(folder, "path.html")
        shardc("inspect", model, "--format", "html", "-o", page)
        b.open(page)
        shown = b.run(EVENT % 1)["source"]
        check(shown.startswith(model + ":") and b.run("window.ran === undefined"), "a path is shown as " + shown)
        quiet(b, page)
    return "%d names, a path" % len(HOSTILE)


LONG = """local nn, optim = require "nn", require "optim"
local model, name = nn.module "Net", ("n"):rep(10000)
model[name] = nn.Linear(8, 8)
function model:forward(x)
  nn.log_metric(("m"):rep(10000), nn.mean(x))
  nn.log_metric([[</script>\u202e"'<b>]], nn.mean(x))
  return self[name](x)
end
return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 2, 8 }) },
  loss = function(m, b) return nn.mean(m(b.x)) end,
  optimizer = optim.SGD { lr = 1e-3 },
}
"""


def test_long_names_of_a_model():
    """A module and a metric of 10,000 letters, from the model to every report, the program's log and the page of its run."""
    folder, name = scratch("page"), "n" * 10000
    model, plan, page, log, records, runs = (os.path.join(folder, f) for f in ("long.lua", "plan.json", "plan.html", "log.jsonl", "records", "run.html"))
    with open(model, "w") as f:
        f.write(LONG)
    binary = build(model, world=2)
    for source in ([model, "--world", "2"], [binary]):
        shardc("inspect", *source, "--format", "json", "-o", plan)
        with open(plan) as f:
            other = json.load(f)
        modules = [e["module"] for p in other["programs"] for e in p["events"]]
        check(name in modules and name in shardc("inspect", plan), "the module is not in the plan's text")
        trace = json.loads(shardc("inspect", plan, "--format", "trace"))["traceEvents"]
        check(sorted(modules) == sorted(e["args"]["module"] for e in trace if e["ph"] == "X"), "the trace has other modules")
    for e in (e for p in other["programs"] for e in p["events"] if e["module"] == name):
        e["duration_us"] *= 2
    with open(os.path.join(folder, "other.plan.json"), "w") as f:
        json.dump(other, f)
    check(name in shardc("diff", plan, f.name), "the difference does not name the module")
    shardc("inspect", plan, "--format", "html", "-o", page)
    with open(records, "wb") as f:
        f.write(bytes(2 * 64 * 5))
    with open(records, "rb") as f:
        rc, out, err = command([binary, "--data", "-", "--steps", "5", "--log", log, "--report", runs], stdin_file=f)
    check(rc == 0 and max(map(len, out.split("\n"))) < 400, "exit %d: %s%s" % (rc, out[:1000], err))
    with Browser() as b:
        b.open(page)
        at = b.run("shardc.state.program.ids.findIndex((_, e) => shardc.state.program.text(e, MODULE) === %s)" % json.dumps(name))
        check(at >= 0 and b.run(EVENT % at)["module"] == name, "the module is not shown")
        check(b.run("document.documentElement.scrollWidth <= innerWidth && document.querySelector('#scroll').clientHeight > 250"), "the module's name leaves no room")
        quiet(b, page)
        b.open(runs)
        titles = b.run("[...document.querySelectorAll('.chart h2')].map(e => e.textContent)")
        check("m" * 10000 in titles and "</script>\u202e\"'<b>" in titles, "the run's charts are called %s" % [t[:80] for t in titles])
        check(b.run("document.documentElement.scrollWidth <= innerWidth"), "the metric's name makes the page wider than the window")
        quiet(b, runs)


def test_emitted_statements():
    """Each event's statement stands as `build` writes it, on the CPU and for CUDA; that of a selected event is shown. A plan.json has none."""
    folder, shown = scratch("page"), 0
    for model, args in (("gpt2.lua", ["--world", "2"]), ("llama3.lua", ["--world", "8", "--set", "size=1b", "--set", "precision=bf16", "--device", "h200"])):
        path, page = os.path.join(ROOT, "models", model), os.path.join(folder, model + ".html")
        shardc("inspect", path, *args, "--format", "html", "-o", page)
        shardc("build", path, *args, "--sources", "-o", os.path.join(folder, "out"))
        text, at = open(os.path.join(folder, "out.c")).read(), 0
        with Browser() as b:
            b.open(page)
            for name in b.run("shardc.state.plan.programs.map(p => p.name)"):
                at = text.index("static void program_%s(" % name)
                for statement in b.run("(() => { const p = shardc.state.plan.programs.find(p => p.name === %s).prepare(); return p.ids.map((_, e) => p.statement(e)); })()" % json.dumps(name)):
                    check(statement.strip(), "an event of %s has no statement" % name)
                    check(statement in text[at:], "not in what build writes, behind the one before: %s" % statement)
                    at, shown = text.index(statement, at) + len(statement), shown + 1
            b.run("shardc.select({ event: 3 }, true)")
            pre = b.run("document.querySelector('#selection .statement').textContent")
            check("RUN(" in pre or "sc_" in pre, "the panel shows " + pre)
            quiet(b, page)
    plan, page = os.path.join(folder, "p.json"), os.path.join(folder, "p.html")
    open(plan, "w").write(shardc("inspect", os.path.join(ROOT, "models", "mlp.lua"), "--format", "json"))
    shardc("inspect", plan, "--format", "html", "-o", page)
    with Browser() as b:
        b.open(page)
        b.run("shardc.select({ event: 3 }, true)")
        check(b.run("document.querySelector('#selection .statement') === null"), "a plan.json has statements")
    return "%d statements" % shown


def test_refusals():
    model = os.path.join(ROOT, "models", "mlp.lua")
    for option in (["--program", "micro"], ["--columns", "all"], ["--module", "*"], ["--stream", "compute"]):
        rc, _, err = command([SHARDC, "inspect", model, "--format", "html", *option])
        check(rc == 2 and "--format html writes the whole plan" in err, "exit %d: %s" % (rc, err))
    rc, out, err = command([SHARDC, "predict", model, "--format", "html"])
    check(rc == 2 and "one of text, json, csv is wanted" in err, "exit %d: %s" % (rc, err))
    return "5 commands"
