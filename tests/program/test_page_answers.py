"""Questions that people ask a plan, answered on its page: what is shown is what `shardc explain` says, or what follows from `inspect --format json`.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import json
import os
import random
import re

from browser import Browser, accessible, near, quiet
from harness import ROOT, check, scratch, shardc
from test_page import live_at

LLAMA_8B = ["llama3.lua", "--set", "size=8b", "--set", "precision=bf16", "--set", "seq=8192", "--world", "8", "--device", "h200"]
LLAMA_405B = ["llama3.lua", "--set", "size=405b", "--set", "precision=bf16", "--set", "seq=8192", "--set", "recompute=full", "--world", "512", "--device", "h200"]
MOE = ["moe.lua", "--world", "4", "--set", "expert=2"]
GPT2 = ["gpt2.lua", "--world", "2", "--set", "layers=2", "--set", "dim=64", "--set", "heads=4", "--set", "vocab=256", "--set", "seq=64"]


def written(name, args):
    """(path of the page, what it is made of)"""
    source = [os.path.join(ROOT, "models", args[0]), *args[1:]] if args[0].endswith(".lua") else args
    page = os.path.join(scratch("page_answers"), name + ".html")
    shardc("inspect", *source, "--format", "html", "-o", page)
    return page, source


def explained(source, event):
    """What `explain` says of an event, by title; lines without one belong to the title before."""
    said, title = {}, None
    for line in re.sub(r"\n {19}(?=\S)", " ", shardc("explain", *source, event)).splitlines()[1:]:
        title = line[2:16].strip() or title
        said[title] = said[title] + "\n" + line[17:] if title in said else line[17:]
    return said


def unfolded(text):
    """A figure of `explain` as the page writes it: "4.8 ms", "0.71 s", "12.5 us" as microseconds."""
    m = re.match(r"([\d.]+) (us|ms|s)$", text)
    return float(m[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[m[2]]


def slack_of(p):
    """By id: how much later each event of a program may end, from the JSON."""
    end, following, at = {}, {}, {e["id"]: e for e in p["events"]}
    for e in reversed(p["events"]):
        last = min(end.get(e["id"], p["step_us"]), following.get(e["stream"], p["step_us"]))
        end[e["id"]] = last
        following[e["stream"]] = last - e["duration_us"]
        for w in e["waits"]:
            end[w] = min(end.get(w, p["step_us"]), last - e["duration_us"])
    return {i: max(0, end[i] - e["start_us"] - e["duration_us"]) for i, e in at.items()}


# ── slack, who made an event, why it is issued where it is ───────────────────────────────────────────────────────────────────
WHY = """(() => { const fact = k => document.querySelector('#selection [data-fact="' + k + '"] [data-value]');
  const issued = document.querySelector('#issued');
  return { slack: Number(fact('may end later').dataset.value), origin: document.querySelector('#origin').textContent, issued: issued && issued.textContent, by: issued && issued.querySelector('button') && issued.querySelector('button').textContent }; })()"""


def test_why_it_stands_here():
    """Slack, pass and rule of issue are what `explain` says; the critical path is what the JSON has no slack for."""
    rules, compared = set(), 0
    for name, args in (("8b", LLAMA_8B), ("moe", MOE), ("gpt2", GPT2)):
        page, source = written(name, args)
        p = next(p for p in json.loads(shardc("inspect", *source, "--format", "json"))["programs"] if p["name"] == "micro")
        slack, streams = slack_of(p), {}
        for i, e in enumerate(p["events"]):
            streams.setdefault(e["stream"], []).append(i)
        with Browser() as b:
            b.open(page)
            shown = b.run("[...shardc.state.program.slack]")
            check(all(abs(x - slack[e["id"]]) < 1e-3 for x, e in zip(shown, p["events"])), "%s: slack differs from JSON's" % name)
            check(0 < sum(x == 0 for x in shown) < len(shown), "%s: %d of %d events are critical" % (name, sum(x == 0 for x in shown), len(shown)))
            for i in [k for s in streams.values() for k in random.Random(3).sample(s, min(3, len(s)))]:
                e = p["events"][i]
                b.run("shardc.select({ event: %d }, true)" % i)
                got, said = b.run(WHY), explained(source, e["id"])
                takes, _, later = said["takes"].partition("; it may end ")
                wanted = unfolded(later.split(" later")[0]) if later else 0
                check(abs(got["slack"] - wanted) <= .05 * wanted + .006, "%s: %s may end %s us later, explain says %s" % (name, e["id"], got["slack"], said["takes"]))
                check("Made by pass " + re.split(r"[ ,]", said["made by"][5:])[0] in got["origin"] and said["purpose"] in got["origin"], "%s: %s says %s, explain %s" % (name, e["id"], got["origin"], said))
                words = said["issued"].split(" (")[0]
                check(" ".join(filter(None, got["issued"].split()[:len(words.split())])) == words, "%s: %s is issued %s, explain says %s" % (name, e["id"], got["issued"], said["issued"]))
                check(not got["by"] or got["by"] in words, "%s: %s is issued for %s, explain says %s" % (name, e["id"], got["by"], words))
                rules.add(re.sub(r"\b[a-z]+\d\w*(\.\w+)*", "e", words))
                compared += 1
            quiet(b, page)
    check(len(rules) >= 5, "only these rules were met: %s" % rules)
    plan = os.path.join(scratch("page_answers"), "plan.json")
    shardc("inspect", *source, "--format", "json", "-o", plan)
    page, _ = written("plan", [plan])
    with Browser() as b:
        b.open(page)
        b.run("shardc.select({ event: 3 }, true)")
        check("only a model tells" in b.run("document.querySelector('#origin').textContent"), "of a plan.json the page says " + b.run("document.querySelector('#origin').textContent"))
        check(b.run(WHY)["slack"] == shown[3], "a plan.json has another slack")
    return "%d events, %d rules" % (compared, len(rules))


def test_tabs():
    """The page begins with who holds the peak. Arrows go from tab to tab; one that was chosen stays while the selection changes, until the first is chosen again; paper shows them all."""
    page, _ = written("gpt2", GPT2)
    with Browser() as b:
        b.open(page)
        names = b.run("[...document.querySelectorAll('[role=tab]')].map(e => e.textContent)")
        shown = lambda: b.run("[...document.querySelectorAll('.tab')].filter(e => !e.hidden).map(e => document.querySelector('[role=tab][aria-selected=true]').getAttribute('aria-controls') === e.id ? e.dataset.tab : '?')")
        check(names[:4] == ["Selection", "Memory", "Time", "Waits"] and shown() == ["Memory"], "tabs are %s, shown is %s" % (names, shown()))
        b.run("shardc.select({ event: 3 }, true)")
        check(shown() == ["Selection"], "what is selected first is shown: %s" % shown())
        b.run("document.querySelector('#tab-selection-tab').focus()")
        for key, name in (("ArrowRight", "Memory"), ("ArrowRight", "Time"), ("ArrowLeft", "Memory"), ("End", names[-1]), ("Home", "Selection")):
            b.press(key)
            check(shown() == [name] and b.run("document.activeElement.textContent") == name, "%s shows %s" % (key, shown()))
        b.click_on("#tab-waits-tab")
        for e in (5, 9):
            b.run("shardc.select({ event: %d }, true)" % e)
            check(shown() == ["Waits"] and b.run("document.querySelector('#why h2 button').textContent") == b.run("shardc.state.program.id(%d)" % e), "what is selected is not followed: %s" % shown())
        b.click_on("#tab-selection-tab")
        b.press("p")
        check(shown() == ["Memory"], "the peak shows %s" % shown())
        b.run("shardc.select({ event: 5 }, true)")
        check(shown() == ["Selection"], "an event shows %s" % shown())
        text = "".join(b.printed()[0])
        for title in ("Alive at", "What would lower the peak", "Time by op", "Why it stands here"):
            check(title in text, "on paper there is no \"%s\"" % title)
        quiet(b, page)
    return "%d tabs" % len(names)


COLOURS = """(() => { const p = shardc.painter, g = shardc.state.program, c = document.createElement('canvas').getContext('2d', { willReadFrequently: true }); p.draw(p.top);
  [c.canvas.width, c.canvas.height] = [p.canvas.width, p.canvas.height]; c.drawImage(p.canvas, 0, 0);
  return [...new Set(g.streams.flatMap(s => [...s.order]))].filter(e => p.x(g.end[e]) - p.x(g.start[e]) > 6 && p.x(g.start[e]) > LEFT && p.x(g.end[e]) < p.width).map(e => {
    const [x0, x1, y] = p.box(e), d = c.getImageData(Math.round((x0 + x1) / 2 * p.ratio), Math.round((y - p.top + 4) * p.ratio), 1, 1).data;
    return [g.slack[e] > 0, '#' + [...d].slice(0, 3).map(v => v.toString(16).padStart(2, '0')).join('')]; }); })()"""


def test_critical_path():
    """One click dims every event that has slack, and no other; the next click brings colours back."""
    page, _ = written("8b", LLAMA_8B)
    with Browser() as b:
        b.open(page)
        for theme in ("light", "dark"):
            if b.run("document.documentElement.dataset.theme") != theme:
                b.click_on("#theme")
            b.run("shardc.view(0, shardc.state.program.duration / 8)")
            b.settle()
            band = b.run("shardc.painter.colour.band")
            before = b.run(COLOURS)
            b.click_on("#critical")
            b.settle()
            dimmed = b.run(COLOURS)
            check(all((colour == band) == slack for slack, colour in dimmed) and len({slack for slack, _ in dimmed}) == 2, "%s: events with slack, and colours: %s, %s" % (theme, band, dimmed[:20]))
            check("may end later" in b.run("document.querySelector('#legend').textContent"), "the legend does not say what is dimmed")
            b.press("c")
            check(b.run(COLOURS) == before and b.run("document.querySelector('#critical').getAttribute('aria-pressed')") == "false", "%s: colours do not come back" % theme)
        quiet(b, page)
    return "%d events" % len(dimmed)


# ── a range of time, a module ────────────────────────────────────────────────────────────────────────────────────────────────
SUMS = """(() => { document.querySelectorAll('#sums > .link').forEach(e => e.click());
  const fact = k => { const e = document.querySelector('#sums [data-fact="' + k + '"] [data-value]'); return e && Number(e.dataset.value); };
  return { of: document.querySelector('#sums-of').textContent, duration: fact('duration') ?? fact('from first to last'), events: fact('events'), exposed: fact('exposed'), wire: fact('on the wire'), peak: fact('peak within'),
    tables: Object.fromEntries([...document.querySelectorAll('#sums table')].map(t => [t.dataset.table, Object.fromEntries([...t.querySelectorAll('tbody tr')].map(r => [r.dataset.sum, Number(r.dataset.us)]))])),
    shares: Object.fromEntries([...document.querySelectorAll('#sums table')].map(t => [t.dataset.table, [...t.querySelectorAll('tbody tr')].reduce((sum, r) => sum + Number(r.dataset.share), 0)])) }; })()"""
KERNELS = ("compute", "host", "update")


def summed(plan, p, a, z, module=None):
    """The same from the JSON, of what lies between two moments, or in a module."""
    events, at = p["events"], {e["id"]: e for e in p["events"]}
    end = lambda e: e["start_us"] + e["duration_us"]
    inside = lambda e: module is None or e["module"] == module or e["module"].startswith(module + ".")
    part = lambda s, t: max(0, min(t, z) - max(s, a))
    ops, phases, wire, exposed, busy, until, last, count = {}, {}, 0, 0, 0, 0, None, 0
    for e in events:
        us = part(e["start_us"], end(e))
        if inside(e) and us > 0:
            count += 1
            ops[e["op"]] = ops.get(e["op"], 0) + us
            phases[e["phase"]] = phases.get(e["phase"], 0) + us
            wire += e["bytes"] * us / e["duration_us"] if "comm" in e else 0
        if e["stream"] == "compute":
            awaited = None
            for w in e["waits"]:
                if end(at[w]) > (end(awaited) if awaited else busy):
                    awaited = at[w]
            if awaited and awaited["stream"] not in KERNELS and inside(awaited):
                exposed += part(busy, end(awaited))
            busy = end(e)
        if e["stream"] in KERNELS:
            until = max(until, end(e))
        elif last is None or end(e) > end(last):
            last = e
    if last and inside(last):
        exposed += part(until, max(until, end(last)))
    return {"ops": ops, "phases": phases, "wire": wire, "exposed": exposed, "events": count}


def agree(shown, want, what):
    for key in ("wire", "exposed", "events"):
        check(abs(shown[key] - want[key]) <= 1e-3 + 1e-6 * want[key], "%s: %s is shown as %s, JSON says %s" % (what, key, shown[key], want[key]))
    for key in ("phases", "ops", "modules"):
        check(abs(shown["shares"].get(key, 1) - 1) < 1e-6, "%s: shares of %s add up to %s" % (what, key, shown["shares"].get(key)))
    for key in ("ops", "phases"):
        rows = shown["tables"].get(key, {})
        check(set(rows) == set(want[key]) and all(abs(rows[k] - want[key][k]) <= 1e-3 + 1e-6 * rows[k] for k in rows), "%s: %s are shown as %s, JSON says %s" % (what, key, rows, want[key]))


def test_sums_of_a_range_and_of_a_module():
    """A drag along the ruler, and a click on a module, against the same sums of the JSON."""
    compared = 0
    for name, args in (("8b", LLAMA_8B), ("moe", MOE), ("gpt2", GPT2)):
        page, source = written(name, args)
        plan = json.loads(shardc("inspect", *source, "--format", "json"))
        p = next(p for p in plan["programs"] if p["name"] == "micro")
        with Browser() as b:
            b.open(page)
            end = b.run("shardc.state.program.duration")
            agree(b.run(SUMS), summed(plan, p, 0, end), name)
            left, top = b.run("(r => [r.x, r.y])(document.querySelector('#canvas').getBoundingClientRect())")
            for x0, x1 in ((200, 420), (700, 500)):
                b.mouse("mousePressed", left + x0, top + 8, button="left", clickCount=1)
                b.mouse("mouseMoved", left + x1, top + 8, button="left", buttons=1)
                b.mouse("mouseReleased", left + x1, top + 8, button="left", clickCount=1)
                b.settle()
                a, z = b.run("shardc.state.selection.range")
                check(near(min(a, z), b.run("Math.max(0, shardc.painter.time(%d))" % min(x0, x1))) and near(max(a, z), b.run("shardc.painter.time(%d)" % max(x0, x1))), "%s: a drag selects %s to %s" % (name, a, z))
                shown, want = b.run(SUMS), summed(plan, p, a, z)
                agree(shown, want, "%s, %g to %g" % (name, a, z))
                check(near(shown["duration"], z - a), "%s: the range is %s long" % (name, shown["duration"]))
                issued = [i for i, e in enumerate(p["events"]) if e["stream"] == "compute" and e["start_us"] < z and e["start_us"] + e["duration_us"] > a]
                least = max(sum(live_at(plan, p, i)[0].values()) for i in issued[1:])
                most = max(sum(live_at(plan, p, i)[0].values()) for i in range(max(0, issued[0] - 20), min(len(p["events"]), issued[-1] + 20)))
                check(least <= shown["peak"] <= most, "%s: the peak within %g to %g is %d, events there hold %d to %d" % (name, a, z, shown["peak"], least, most))
                check(b.run("getComputedStyle(document.querySelector('#sums')).display") != "none" and b.run("!document.querySelector('#tab-time').hidden"), "%s: the sums are not in sight" % name)
                compared += 1
            b.press("Escape")
            check(b.run("document.querySelector('#sums-of').textContent") == "All of micro", "Escape leaves the sums of a range")
            row, member, x, y = b.run("""(() => { const p = shardc.painter, wide = r => [...r.spans.starts.keys()].find(k => p.x(r.spans.ends[k]) - p.x(r.spans.starts[k]) > 4);
              const rows = p.moduleRows.filter(r => wide(r) !== undefined), r = rows.find(r => r.members.length > 1) || rows[0], k = wide(r);
              return [r.key, r.members[r.spans.member[k]].path, (p.x(r.spans.starts[k]) + p.x(r.spans.ends[k])) / 2, r.y - p.top + 8]; })()""")
            b.click(left + x, top + y)
            agree(b.run(SUMS), summed(plan, p, 0, end, member), "%s, %s" % (name, member))
            check(member in b.run("document.querySelector('#sums-of').textContent"), "a click on %s sums up %s" % (member, b.run("document.querySelector('#sums-of').textContent")))
            b.press("f")
            seen = b.run("[shardc.state.t0, shardc.state.t1]")
            mine = [e for e in p["events"] if e["module"] == member or e["module"].startswith(member + ".")]
            check(seen[0] <= min(e["start_us"] for e in mine) and max(e["start_us"] + e["duration_us"] for e in mine) <= seen[1], "F does not show all of %s" % member)
            texts = accessible(b, "shardc.select({ module: %s }, true)" % json.dumps(member))
            quiet(b, page)
    return "%d ranges, %d texts" % (compared, texts)


def test_overlap_of_the_optimizer():
    """How long kernels of the optimizer run, and of that beside other phases."""
    page, source = written("8b", LLAMA_8B)
    p = next(p for p in json.loads(shardc("inspect", *source, "--format", "json"))["programs"] if p["name"] == "micro")
    spans = lambda mine: sorted((e["start_us"], e["start_us"] + e["duration_us"]) for e in p["events"] if (e["phase"] == "optimizer") == mine)
    cuts = sorted({t for s in spans(True) + spans(False) for t in s})
    runs = lambda all_of, t: any(a <= t < z for a, z in all_of)
    beside = sum(z - a for a, z in zip(cuts, cuts[1:]) if runs(spans(True), a) and runs(spans(False), a))
    with Browser() as b:
        b.open(page)
        b.click_on("#tab-time-tab")
        said = b.run("[...document.querySelectorAll('#sums [data-table=phases] tr')].find(r => r.dataset.sum === 'optimizer').lastElementChild.textContent")
    value, unit = said.split()
    check(abs(float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit] - beside) <= .006 * {"us": 1, "ms": 1e3, "s": 1e6}[unit] + 1e-6 * beside, "the optimizer runs beside other phases for %s, JSON says %s us" % (said, beside))
    return said


# ── the roofline ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
UNITS = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "": 1}
ROOFLINE = """(() => { const fact = k => document.querySelector('#selection [data-fact="' + k + '"]'), share = k => { const e = fact(k) && fact(k).querySelector('[data-share]'); return e ? [Number(e.dataset.share), fact(k).textContent] : null; };
  return { flops: share('arithmetic'), bytes: share('memory traffic') || share('on the wire') || share('copied'), bound: fact('bound by') && fact('bound by').textContent }; })()"""


def test_roofline():
    """Of each kind of event the shares of the peaks are those of `explain`, and follow from the plan; a plan.json tells the same."""
    bounds, compared = set(), 0
    for name, args in (("8b", LLAMA_8B), ("offload", LLAMA_8B + ["--set", "offload=activations", "--set", "recompute=full"]), ("405b", LLAMA_405B), ("gpt2", GPT2)):
        page, source = written(name, args)
        plan = json.loads(shardc("inspect", *source, "--format", "json"))
        p, kinds = next(p for p in plan["programs"] if p["name"] == "micro"), {}
        for i, e in enumerate(p["events"]):
            kinds.setdefault((e["op"], e["stream"]), []).append(i)
        with Browser() as b:
            b.open(page)
            for i in [random.Random(5).choice(k) for k in kinds.values()]:
                e = p["events"][i]
                b.run("shardc.select({ event: %d }, true)" % i)
                shown, said = b.run(ROOFLINE), explained(source, e["id"]).get("reaches")
                least = [e[k] / e[peak] * 1e6 if e.get(peak) else 0 for k, peak in (("flops", "peak_flops"), ("bytes", "peak_bytes"))]
                if not max(least):
                    check(said is None and shown["bound"] is None, "%s: %s has no limit, explain says %s, the page %s" % (name, e["id"], said, shown))
                    continue
                rates = [(float(r), float(share), float(peak)) for r, share, peak in re.findall(r"([\d.e+]+) \w+/s, (\d+) % of ([\d.e+]+)", said)]
                for key, us, wanted in zip(("flops", "bytes"), least, [None] * (2 - len(rates)) + rates if least[0] == 0 else rates + [None]):
                    check(bool(us) == bool(shown[key]), "%s: %s of %s is %s, shown as %s" % (name, key, e["id"], us, shown[key]))
                    if us:
                        check(abs(shown[key][0] - us / e["duration_us"]) <= 1e-3 * shown[key][0] and abs(100 * shown[key][0] - wanted[1]) <= .51, "%s: %s of %s reaches %s, explain says %s" % (name, key, e["id"], shown[key], said))
                bound = said.rsplit("bound by ", 1)[1]
                check(shown["bound"].startswith(bound + ": ") and (bound == "arithmetic") == (least[0] > least[1]), "%s: %s is bound by %s, explain says %s" % (name, e["id"], shown["bound"], bound))
                check(near(b.run("shardc.state.program.limit[%d]" % i), float("%.6g" % max(least))) , "%s: the limit of %s" % (name, e["id"]))
                bounds.add(bound)
                compared += 1
            quiet(b, page)
    check(bounds == {"arithmetic", "memory", "the host's bus", "links of the node", "the network"}, "events are bound by %s alone" % bounds)
    saved = os.path.join(scratch("page_answers"), "plan.json")
    with open(saved, "w") as f:
        json.dump(plan, f)
    again, _ = written("again", [saved])
    with Browser() as b:
        limits = []
        for path in (page, again):
            b.open(path)
            limits.append(b.run("[...shardc.state.program.limit]"))
        check(limits[0] == limits[1], "a plan.json has other limits")
        for e in p["events"]:
            for key in ("peak_flops", "peak_bytes", "over"):
                e.pop(key, None)
        with open(saved, "w") as f:
            json.dump(plan, f)
        again, _ = written("again", [saved])
        b.open(again)
        check(b.run("shardc.state.program.limit.every(x => x === 0)"), "a plan that knows no peaks has limits")
        b.run("shardc.select({ event: 3 }, true)")
        check(b.run(ROOFLINE)["bound"] is None, "a plan that knows no peaks says " + str(b.run(ROOFLINE)))
        quiet(b, again)
    return "%d events, %d bounds" % (compared, len(bounds))


# of each row: the events that it stands for, the one that it names, its cells
TABLE = """[...document.querySelectorAll('[data-events=%s] tr[data-event], [data-events=%s] tr[data-alike]')].map(r => [r.dataset.event || r.dataset.first, Number(r.dataset.alike || 1), r.querySelector('button:last-of-type').textContent,
  Object.fromEntries([...r.nextElementSibling.cells].map(c => [c.dataset.cell, c.textContent])), r.textContent])"""


def test_tables_of_events():
    """Events of equal layers are one row, against the same sums of the JSON: sorted by duration and by distance from the limit, of the program, of a range and
    of a module. A row names the largest of its events and opens to them; the slowest collectives come first, with their group, link and share of the link."""
    for name, args in (("8b", LLAMA_8B), ("405b", LLAMA_405B)):
        page, source = written(name, args)
        p = next(p for p in json.loads(shardc("inspect", *source, "--format", "json"))["programs"] if p["name"] == "micro")
        at = {e["id"]: e for e in p["events"]}
        pattern = lambda e: (e["op"], e["phase"], e["stream"], e.get("comm"), e.get("over") or "", re.sub(r"(?<![^.])\d+(?![^.])", "*", e["module"]))
        lost = lambda e: e["duration_us"] - max(e["flops"] / e["peak_flops"] if e.get("peak_flops") else 0, e["bytes"] / e["peak_bytes"]) * 1e6
        alike = {}
        for e in p["events"]:
            alike.setdefault(pattern(e), []).append(e)
        with Browser() as b:
            b.open(page)
            b.click_on("#tab-time-tab")
            rows_of = lambda table: b.run(TABLE % (table, table))
            for column, value in (("time", lambda e: e["duration_us"]), ("lost", lost)):
                b.run("document.querySelector('[data-events=events] [data-column=%s]').scrollIntoView({ block: 'center' })" % column)
                b.click_on("[data-events=events] [data-column=%s]" % column)
                rows = rows_of("events")
                want = sorted((sum(map(value, g)) for g in alike.values()), reverse=True)[:len(rows)]
                check(len(rows) == min(12, len(alike)), "%s by %s: %d rows of %d" % (name, column, len(rows), len(alike)))
                for (first, n, most, _, _), w in zip(rows, want):
                    mine = alike[pattern(at[first])]
                    check(n == len(mine) and abs(sum(map(value, mine)) - w) <= 1e-3 + 1e-5 * abs(w), "%s by %s: the row of %s is of %d events and %s us, JSON says %d and %s" % (name, column, first, n, sum(map(value, mine)), len(mine), w))
                    check(abs(value(at[most]) - max(map(value, mine))) <= 1e-3 + 1e-5 * abs(value(at[most])), "%s by %s: of the events like %s the largest is not %s" % (name, column, first, most))
                check(b.run("document.activeElement.dataset.column") == column and b.run("document.querySelectorAll('[data-events=events] [aria-sort]').length") == 1, "%s: the heading that was clicked loses the focus" % name)
            check(max(n for _, n, _, _, _ in rows) >= 32, "%s: no layers are folded: %s" % (name, rows))
            b.run("document.querySelector('[data-events=events] [data-column=exposed]').click()")
            waited = b.run("shardc.state.program.exposedParts().reduce((s, x) => s + x.us, 0)")
            check(abs(waited - p["exposed_us"]) < 1e-3 + 1e-6 * waited, "%s: exposed are %s, JSON says %s" % (name, waited, p["exposed_us"]))
            check(rows_of("events")[0][3]["exposed"] != "", "%s: nothing is exposed: %s" % (name, rows_of("events")[0]))
            slowest = max((g for g in alike.values() if "comm" in g[0]), key=lambda g: sum(e["duration_us"] for e in g))
            first, n, most, cells, note = rows_of("collectives")[0]
            check(n == len(slowest) and pattern(at[first]) == pattern(slowest[0]) and cells["share"].endswith("%"), "%s: the slowest collectives are %s, JSON says %s" % (name, (first, n), slowest[0]["id"]))
            check(abs(unfolded(cells["time"]) - sum(e["duration_us"] for e in slowest)) < .006 * sum(e["duration_us"] for e in slowest), "%s: they take %s" % (name, cells["time"]))
            check({"link": "links of the node", "network": "the network"}[at[first]["over"]] in note and slowest[0]["comm"] + ", " in note, "%s: %s goes over %s, the page says %s" % (name, first, at[first]["over"], note))
            fold = "[data-events=collectives] [data-fold]"
            b.run("document.querySelector('%s').click()" % fold)
            opened = [r for r in rows_of("collectives") if r[1] == 1 and pattern(at[r[0]]) == pattern(slowest[0])]
            check(len(opened) == min(100, n) and opened[0][0] == most and b.run("document.activeElement.dataset.fold") == first and b.run("document.querySelector('%s').getAttribute('aria-expanded')" % fold) == "true", "%s: the row of %s opens to %d of %d" % (name, first, len(opened), n))
            check((n > 100) == ("and %d more of them" % (n - 100) in b.run("document.querySelector('[data-events=collectives]').textContent")), "%s: what is not shown of %d is not said" % (name, n))
            b.run("document.querySelector('[data-events=collectives] tr[data-event] button').click()")
            check(b.run("shardc.state.program.id(shardc.state.selection.event)") == most, "a click on a row selects something else")
            if len(alike) > 12:
                b.run("document.querySelector('[data-events=events] > .link').click()")
                check(len(rows_of("events")) == min(112, len(alike)), "more rows are %d of %d" % (len(rows_of("events")), len(alike)))
            a, z = .4 * p["step_us"], .45 * p["step_us"]
            b.run("shardc.select({ range: [%r, %r] }, true)" % (a, z))
            rows, inside = rows_of("events"), [e for e in p["events"] if e["start_us"] < z and e["start_us"] + e["duration_us"] > a]
            check(rows and all(n == sum(pattern(e) == pattern(at[i]) for e in inside) for i, n, _, _, _ in rows), "%s: events of a range are %s" % (name, [r[:3] for r in rows]))
            texts = accessible(b, "document.querySelector('#tab-time-tab').click()")
            quiet(b, page)
    return "%d texts" % texts


# ── finding, and links ───────────────────────────────────────────────────────────────────────────────────────────────────────
FOUND = """[...document.querySelectorAll('#results li')].map(e => e.textContent.split('  ')[0])"""


def test_find():
    """By address, by line of Lua, by duration and by size, each against the JSON; with words beside them; nonsense finds nothing and breaks nothing."""
    asked = 0
    for name, args in (("8b", LLAMA_8B), ("405b", LLAMA_405B), ("gpt2", GPT2)):
        page, source = written(name, args)
        plan = json.loads(shardc("inspect", *source, "--format", "json"))
        p = next(p for p in plan["programs"] if p["name"] == "micro")
        at, events = {e["id"]: i for i, e in enumerate(p["events"])}, p["events"]
        mine = [s for s in plan["storages"] if s["arena"] == "device" and s.get("program", "micro") == "micro"]
        alive = lambda s, now: "program" not in s or at[s["first"]] <= now <= at[s["last"]]
        with Browser() as b:
            b.open(page)
            total = lambda: int(b.run("document.querySelector('#found-title').textContent.split(' ')[0]"))
            rng = random.Random(9)
            for s in rng.sample([s for s in mine if s["size"] and "program" in s], 4):
                now = rng.randint(at[s["first"]], at[s["last"]])
                address = s["offset"] + rng.randrange(s["size"])
                b.run("shardc.select({ event: %d }, true)" % now)
                b.search("0x%x" % address)
                got = b.run(FOUND)
                want = {x["name"] for x in mine if x["offset"] <= address < x["offset"] + x["size"]}
                check(got[0] == s["name"] and total() == len(want) and set(got) <= want, "%s: at 0x%x while %s runs is %s, JSON says %s" % (name, address, events[now]["id"], got[:3], s["name"]))
                b.run("document.querySelector('#search').focus()")
                b.press("Enter")
                check(b.run("document.querySelector('#selection h2').textContent") == s["name"], "Enter selects something else")
                asked += 1
            for e in rng.sample([e for e in events if "source" in e], 3):
                line = e["source"].split("/")[-1]
                b.search(line.rsplit(":", 1)[0])
                check(total() == sum(x.get("source", "").split("/")[-1].rsplit(":", 1)[0] == line.rsplit(":", 1)[0] for x in events), "%s: %s finds %d events" % (name, line.rsplit(":", 1)[0], total()))
                for query, also in ((line, lambda x: True), (line + " backward", lambda x: x["phase"] == "backward"), (e["source"].split("/", 1)[1], lambda x: True)):
                    b.search(query)
                    want = [x["id"] for x in events if x.get("source") == e["source"] and also(x)]
                    check(total() == len(want) and set(b.run(FOUND)) == set(want[:200]), "%s: %s finds %d events, JSON has %d" % (name, query, total(), len(want)))
                    asked += 1
            middle = sorted(e["duration_us"] for e in events)[len(events) * 9 // 10]
            for query, wanted in ((">%.3fus" % middle, [e for e in events if e["duration_us"] > float("%.3f" % middle)]), ("<%.6fms matmul" % (middle / 1e3), [e for e in events if e["duration_us"] < 1e3 * float("%.6f" % (middle / 1e3)) and "matmul" in " ".join((e["id"], e["op"], e["module"], e["phase"]))])):
                b.search(query)
                check(total() == len(wanted) and near(float(b.run("document.querySelector('#found-title').dataset.us")), sum(e["duration_us"] for e in wanted)), "%s: %s finds %d, JSON has %d" % (name, query, total(), len(wanted)))
                asked += 1
            hosts = [s for s in plan["storages"] if s.get("program", "micro") == "micro"]
            b.search(">1MiB activations")
            check(total() == sum(s["size"] > 1 << 20 and s["class"] == "activations" for s in hosts), "%s: >1MiB activations finds %d" % (name, total()))
            for query in ("0xffffffffffff", "nowhere.lua:3", ">5parsecs", "0x", ":", ">", "> 5ms", "a:b:c", "(", "\\"):
                b.search(query)
                check(total() >= 0, "%s breaks the search" % query)
            title = lambda: b.run("document.querySelector('#found-title').textContent")
            for query, said in (("matmul nowhere", "nothing has nowhere"), ("nowhere.lua matmul >9000s", "nothing has nowhere.lua, nor >9000s"), (line + " >9000s", "nothing has >9000s"),
                                ("forward backward", "each part has something, but nothing has all of forward, backward")):
                b.search(query)
                check(title() == "0 found: " + said and b.run("document.querySelector('#said').textContent") == title(), "%s: %s says %s" % (name, query, title()))
            b.search("0xffffffffffff")
            check(total() == 0, "something has the last address")
            b.search("")
            quiet(b, page)
    return "%d questions" % asked


def test_live_set_by_lines():
    """Bytes of a line are those of all storages whose first writer it is; they add up to what is alive and does not outlive the program."""
    page, source = written("8b", LLAMA_8B)
    plan = json.loads(shardc("inspect", *source, "--format", "json"))
    p = next(p for p in plan["programs"] if p["name"] == "micro")
    at = {e["id"]: i for i, e in enumerate(p["events"])}
    with Browser() as b:
        b.open(page)
        for e in (at[p["peak_event"]], len(at) // 4):
            b.run("shardc.select({ event: %d }, true)" % e)
            b.settle()
            want = {}
            for s in plan["storages"]:
                if s["arena"] == "device" and s.get("program") == "micro" and at[s["first"]] <= e <= at[s["last"]]:
                    line = p["events"][at[s["first"]]].get("source", "(no line)")
                    want[line] = want.get(line, 0) + s["size"]
            shown = b.run("Object.fromEntries([...document.querySelectorAll('#live [data-line]')].map(d => [d.dataset.line, Number(d.querySelector('[data-bytes]').dataset.bytes)]))")
            check(shown == want and list(shown.values()) == sorted(shown.values(), reverse=True), "at %s lines hold %s, JSON says %s" % (p["events"][e]["id"], shown, want))
        quiet(b, page)
    return "%d lines" % len(want)


def test_links():
    """The address says what is seen; the page opens as it was, in another window too; an address that this plan does not know changes nothing."""
    page, _ = written("8b", LLAMA_8B)
    seen = "[shardc.state.program.name, JSON.stringify(shardc.state.selection), [shardc.state.t0, shardc.state.t1].map(x => Math.round(x)), shardc.state.critical, document.querySelector('[role=tab][aria-selected=true]').textContent]"
    later = "new Promise(done => setTimeout(() => done(location.hash), 400))"
    with Browser() as b:
        b.open(page)
        check(b.run(later) == "", "a page that nobody has touched has the address " + b.run("location.hash"))
        states = ["shardc.select({ event: 300 }, true); shardc.view(1000, 25000)", "shardc.select({ storage: shardc.state.program.storages.at(-1).index }, true)", "shardc.select({ range: [100, 2000.5] }, true)", "shardc.select({ module: 'model.layers.3.mlp' }, true); shardc.view(5, 100000)",
                  "shardc.show(3); shardc.select({ event: 2 }, true); document.querySelector('#tab-waits-tab').click(); document.querySelector('#critical').click()"]
        for make in states:
            b.run(make)
            b.settle()
            was, link = b.run(seen), b.run(later)
            check(len(link) > 3 and "p=" + was[0] in link, "the address of %s is %s" % (was, link))
            with Browser() as other:
                other.open(page + link)
                now = other.run(seen)
                check(now == was, "%s opens as %s, not as %s" % (link, now, was))
                check(not other.complaints, "the page complains: %s" % other.complaints)
        b.click_on("#link")
        check(b.run("location.hash") == b.run(later) == link and "address" in b.run("document.querySelector('#said').textContent"), "the button says %s" % b.run("document.querySelector('#said').textContent"))
        b.open(page)
        b.run("location.hash = '#p=micro&e=g8b&t=0-5000'")
        b.settle()
        b.settle()
        check(b.run(seen)[1:3] == [json.dumps({"event": b.run("shardc.state.program.eventNamed('g8b')")}, separators=(",", ":")), [0, 5000]], "#p=micro&e=g8b&t=0-5000 shows %s" % b.run(seen))
        for hash in ("#p=nothing&e=e1", "#e=e999999", "#t=5-1", "#t=x-y", "#s=%E0%A4%A", "#=&&&=", "#tab=nothing", "#r=-5-1e999", "#m=</script><b>"):
            b.run("location.hash = %s" % json.dumps(hash))
            b.settle()
            b.settle()
            check(b.run("shardc.state.program.name === 'micro' && Number.isFinite(shardc.state.t0) && shardc.state.t1 > shardc.state.t0"), "%s shows %s" % (hash, b.run(seen)))
        check(not b.complaints, "the page complains: %s" % b.complaints)
    return "%d states" % len(states)


# ── one layer of many, its unit, its gathers ─────────────────────────────────────────────────────────────────────────────────
def test_one_layer():
    """A layer beside its neighbours, when its unit is gathered and freed, and zooming to its forward and backward, against the JSON; from layer to layer by a
    click."""
    compared = 0
    for name, args, path in (("8b", LLAMA_8B, "model.layers.3"), ("405b", LLAMA_405B, "model.layers.125"), ("moe", MOE, "layers.1.mlp")):
        page, source = written(name, args)
        plan = json.loads(shardc("inspect", *source, "--format", "json"))
        p = next(p for p in plan["programs"] if p["name"] == "micro")
        at, units = {e["id"]: i for i, e in enumerate(p["events"])}, [u["path"] for u in plan["units"]]
        inside = lambda e, module: e["module"] == module or e["module"].startswith(module + ".")
        peak = at[p["peak_event"]]
        with Browser() as b:
            b.open(page)
            for _ in range(2):
                b.run("shardc.select({ module: %s }, true)" % json.dumps(path))
                rows = b.run("[...document.querySelectorAll('#compared tbody tr')].map(r => [r.dataset.compared, [...r.querySelectorAll('[data-module]')].map(c => [c.dataset.module, Number(c.dataset.value)]), Number(r.querySelector('[data-median]').dataset.median)])")
                check({"forward", "backward"} <= {r[0] for r in rows}, "%s: %s is compared by %s" % (name, path, rows))
                for what, cells, _ in rows:
                    check(any(m == path for m, _ in cells) and len(cells) in (2, 3), "%s: %s stands beside %s" % (name, path, cells))
                    for module, value in cells:
                        mine = [e for e in p["events"] if inside(e, module)]
                        want = sum(e["duration_us"] for e in mine if e["phase"] == what)
                        if what == "on the wire":
                            want = sum(e["bytes"] for e in mine if "comm" in e)
                        if what == "alive at the peak":
                            want = sum(s["size"] for s in plan["storages"] if s["arena"] == "device" and (s["owner"] == module or s["owner"].startswith(module + ".")) and s.get("program", "micro") == "micro" and ("program" not in s or at[s["first"]] <= peak <= at[s["last"]]))
                        if what == "exposed":
                            want = summed(plan, p, 0, 1e30, module)["exposed"]
                        check(abs(value - want) <= 1e-3 + 1e-6 * want, "%s: %s of %s is %s, JSON says %s" % (name, what, module, value, want))
                        compared += 1
                unit = b.run("[...document.querySelectorAll('#unit tr')].map(r => [r.dataset.event, r.dataset.freed])")
                own = [u for u in units if u and (u == path or path.startswith(u + "."))]
                check(bool(unit) == any(e["stream"] not in KERNELS and e["module"] == max(own, key=len, default="") for e in p["events"]), "%s: the unit of %s has the events %s" % (name, path, unit))
                for event, freed in unit:
                    writes = {s for s, _, _ in p["events"][at[event]]["writes"]}
                    last = max((at[s["last"]] for s in plan["storages"] if s["id"] in writes and s["class"] == "unsharded" and s.get("program") == "micro"), default=-1)
                    check(freed == (p["events"][last]["id"] if last >= 0 else ""), "%s: what %s gathers is freed after %s" % (name, event, freed))
                for phase in ("forward", "backward"):
                    b.run("document.querySelector('[data-zoom=%s]').click()" % phase)
                    kernels = [e for e in p["events"] if inside(e, path) and e["phase"] == phase and e["stream"] == "compute"]
                    a, z = min(e["start_us"] for e in kernels), max(e["start_us"] + e["duration_us"] for e in kernels)
                    seen = b.run("[shardc.state.t0, shardc.state.t1]")
                    check(seen[0] <= a and z <= seen[1] and seen[1] - seen[0] < 2 * (z - a), "%s: zooming to the %s of %s shows %s of %s" % (name, phase, path, seen, (a, z)))
                b.run("document.querySelector('#compared thead button').click()")
                other = b.run("shardc.state.selection.module")
                check(other != path and re.sub(r"\d+", "*", other) == re.sub(r"\d+", "*", path), "%s: from %s a click goes to %s" % (name, path, other))
                path = other
            quiet(b, page)
    return "%d figures" % compared


def test_gathering_further_ahead():
    """What a gather says of one unit further ahead: under the entry as it is copied the step is shorter by no more than the page says (and times of this
    simulation), and no more than one unit is held beside."""
    tried = []
    for name, args in (("8b", LLAMA_8B[:-3] + ["16", "--nodes", "2", "--device", "h200"]), ("405b", LLAMA_405B), ("gpt2", GPT2)):
        page, source = written(name, args)
        before = json.loads(shardc("predict", *source, "--format", "json"))
        with Browser() as b:
            b.open(page)
            for phase in ("forward", "backward"):
                gather = b.run("(() => { const p = shardc.state.program, own = p.ids.map((_, e) => e).filter(e => p.text(e, OP).startsWith('all_gather') && p.plan.phases[p.phase[e]] === '%s' && /\\d/.test(p.text(e, MODULE))); return own[own.length >> 1]; })()" % phase)
                b.run("shardc.select({ event: %d }, true)" % gather)
                if b.run("document.querySelector('#ahead [data-held]') === null"):
                    continue # none like it could start earlier: test_what_cannot_start_earlier
                said = b.run("(e => ({ exposed: Number(e.querySelector('[data-exposed]').dataset.exposed), held: Number(e.querySelector('[data-held]').dataset.held), entry: e.querySelector('code').textContent }))(document.querySelector('#ahead'))")
                policy = os.path.join(scratch("page_answers"), "ahead.lua")
                with open(policy, "w") as f:
                    f.write(said["entry"])
                after = json.loads(shardc("predict", *source, "--policy", policy, "--format", "json"))
                gained, more = (x["prediction"]["step_us"] for x in (before, after)), after["peak"]["bytes"] - before["peak"]["bytes"]
                was, now = gained
                check(was - now <= said["exposed"] + .002 * was, "%s, %s: the step is %s us shorter, the page says at most %s" % (name, phase, was - now, said["exposed"]))
                check(more <= 1.1 * said["held"], "%s, %s: the peak is %d B higher, the page says at most %d" % (name, phase, more, said["held"]))
                check("prefetch" in shardc("predict", *source, "--policy", policy), "the entry changes no prefetch: %s" % said["entry"])
                tried.append((round(was - now), more))
            b.run("shardc.select({ event: shardc.state.program.leading.order[3] }, true)")
            check(b.run("document.querySelector('#ahead') === null"), "a kernel is gathered further ahead")
            quiet(b, page)
    check(len(tried) >= 3, "only these were tried: %s" % tried)
    return "%s" % tried


def test_what_cannot_start_earlier():
    """A gather whose stream has been busy since the program began cannot start earlier: the page says so, and offers an entry only where others like it can.
    On eight GPUs of 8B nearly all gathers of the forward stand so, on 405B the first ones alone."""
    told = {}
    for name, args in (("8b", LLAMA_8B), ("405b", LLAMA_405B)):
        page, source = written(name, args)
        p = next(p for p in json.loads(shardc("inspect", *source, "--format", "json"))["programs"] if p["name"] == "micro")
        gathers, busy, until = [i for i, e in enumerate(p["events"]) if e["stream"] == "gather" and e["phase"] == "forward"], set(), 0
        for i in gathers:
            if p["events"][i]["start_us"] - until < 1e-3 and len(busy) == gathers.index(i):
                busy.add(i)
            until = p["events"][i]["start_us"] + p["events"][i]["duration_us"]
        pattern = lambda i: re.sub(r"\d+", "*", p["events"][i]["module"])
        with Browser() as b:
            b.open(page)
            for i in gathers:
                b.run("shardc.select({ event: %d }, true)" % i)
                never, offered, held = b.run("(e => [e.querySelector('[data-never]') && e.querySelector('[data-never]').textContent, e.querySelectorAll('code').length, e.querySelectorAll('[data-held]').length])(document.querySelector('#ahead'))")
                check((never is not None) == (i in busy), "%s: of %s the page says %s, its stream is %sbusy before" % (name, p["events"][i]["id"], never, "" if i in busy else "not "))
                any_can = any(k not in busy and pattern(k) == pattern(i) for k in gathers)
                check(offered == held == any_can, "%s: %s offers %d entries and %d bytes" % (name, p["events"][i]["id"], offered, held))
            b.run("shardc.select({ event: %d }, true)" % gathers[0])
            check(b.run("document.querySelector('#ahead [data-never]').textContent") == "This gather cannot start earlier: it starts with the program.", "the first gather says " + b.run("document.querySelector('#ahead').textContent"))
            quiet(b, page)
        told[name] = (len(busy), len(gathers))
    check(told["8b"][0] > 30 and 0 < told["405b"][0] < told["405b"][1] / 10, "gathers that cannot start earlier, of all: %s" % told)
    return "%s" % told


# ── each question in at most two clicks ──────────────────────────────────────────────────────────────────────────────────────
def middle_of(b, script):
    """Where on the page the middle of an event, or of a module's span, is: script gives [x0, x1, y] of the canvas."""
    left, top = b.run("(r => [r.x, r.y])(document.querySelector('#canvas').getBoundingClientRect())")
    x0, x1, y = b.run(script)
    return left + (x0 + x1) / 2, top + y


LONGEST = "(() => { const p = shardc.painter, g = shardc.state.program, row = p.streamRows.find(r => r.name === '%s'), e = [...row.order].reduce((a, e) => g.took[e] > g.took[a] ? e : a); return [p.x(g.start[e]), p.x(g.end[e]), row.y - p.top + 12]; })()"
LAYER = "(() => { const p = shardc.painter, r = p.moduleRows.find(r => r.members.length > 1), k = r.spans.n >> 2; return [p.x(r.spans.from[k]), p.x(r.spans.to[k]), r.y - p.top + 8]; })()"
QUESTIONS = [  # the question, what is clicked or typed, what then says the answer
    ("who holds the peak", ["#to-peak"], "#live details[data-class] summary"),
    ("what is exposed", [], "#totals [data-total=exposed_us]"),
    ("what is exposed, by cause", ["#tab-time-tab"], "#sums [data-table=exposed] tbody tr"),
    ("what to recompute or offload", ["#to-peak"], "#next tr[data-saving]"),
    ("when a unit is gathered and freed", [("canvas", LAYER)], "#unit tr[data-freed^=e]"),
    ("why an event is issued there", [("canvas", LONGEST % "compute"), "#tab-waits-tab"], "#issued"),
    ("what another prefetch would change", [("canvas", LONGEST % "gather"), "#tab-waits-tab"], "#ahead p"),
    ("which tensor has an address", [("type", "0x%x")], "#results li"),
    ("what a line of Lua does", [("type", "decoder.lua:121")], "#results li"),
    ("what a line of Lua holds", ["#to-peak"], "#live [data-line] summary"),
    ("how the optimizer overlaps", ["#tab-time-tab"], "#sums [data-table=phases] tr[data-sum=optimizer]"),
    ("time by op", ["#tab-time-tab"], "#sums [data-table=ops] tbody tr"),
    ("time by module", ["#tab-time-tab"], "#sums [data-table=modules] tbody tr"),
    ("how near to the roofline", [("canvas", LONGEST % "compute")], "#selection [data-fact='bound by']"),
    ("the slowest collective", ["#tab-time-tab"], "[data-events=collectives] tbody tr"),
    ("one layer of many", [("canvas", LAYER)], "#compared tr[data-compared=forward]"),
    ("the critical path", ["#critical"], "#critical[aria-pressed=true]"),
    ("share what is seen", ["#link"], "#said"),
]


def test_questions():
    """Each is answered after two clicks at most, on the page as it opens: what says the answer is shown."""
    for name, args in (("8b", LLAMA_8B), ("405b", LLAMA_405B)):
        page, _ = written(name, args)
        with Browser(1440, 900) as b:
            for question, steps, answer in QUESTIONS:
                b.open(page)
                check(len(steps) <= 2, question)
                for step in steps:
                    if step[0] == "canvas":
                        b.click(*middle_of(b, step[1]))
                    elif step[0] == "type":
                        b.press("/")
                        b.type(step[1] % b.run("shardc.state.program.storages.at(-1).offset") if "%" in step[1] else step[1])
                    else:
                        b.click_on(step)
                b.settle()
                shown = b.run("(e => e && e.getClientRects().length ? e.textContent : null)(document.querySelector(%s))" % json.dumps(answer))
                check(shown, "%s: \"%s\" is not answered: %s is %s" % (name, question, answer, shown))
    return "%d questions" % len(QUESTIONS)
