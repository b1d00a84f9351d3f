"""What people see of the pages of plans, differences and runs: areas that are drawn are the bytes and the time that they stand for; what is asked for is
in sight in wide and in narrow windows; nothing is cut off.

Relies on: harness.py, browser.py, test_report.py (logs), the models. Relied on by: run.py."""
import json
import os

from browser import Browser, quiet
from harness import ROOT, check, scratch, shardc
from test_report import made

LLAMA_405B = ["llama3.lua", "--set", "size=405b", "--set", "precision=bf16", "--world", "1024", "--device", "h100"]
LLAMA_8B = ["llama3.lua", "--set", "size=8b", "--set", "precision=bf16", "--set", "seq=8192", "--world", "8", "--device", "h200"]
GPT2 = ["gpt2.lua", "--world", "2", "--set", "layers=2", "--set", "dim=64", "--set", "heads=4", "--set", "vocab=256", "--set", "seq=64"]
DEEP = ["gpt2.lua", "--world", "2", "--set", "layers=1000", "--set", "dim=64", "--set", "heads=2", "--set", "seq=64"]
WIDTHS = (1440, 1200, 899, 600, 390)


def written(name, args, *more):
    page = os.path.join(scratch("page_view"), name + ".html")
    shardc(*(["diff"] if more else ["inspect"]), os.path.join(ROOT, "models", args[0]), *args[1:], *more, "--format", "html", "-o", page)
    return page


def resize(b, width, height=900):
    b.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    b.settle()
    b.settle()


def where(b, selector):
    """[left, top, right, bottom] in the window; None: nothing of it is there."""
    return b.run("(e => e && e.getClientRects().length ? (r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect()) : null)(document.querySelector(%s))" % json.dumps(selector))


def in_sight(b, selector, what):
    """Its beginning is within the window, and within the part of the panels that is scrolled to."""
    box, height = where(b, selector), b.run("innerHeight")
    check(box and 0 <= box[1] and box[1] + 12 <= height, "%s: %s is at %s of a window of %d" % (what, selector, box, height))
    at = b.run("(e => { const r = e.getBoundingClientRect(), top = document.elementFromPoint(r.left + 4, r.top + r.height / 2); return top === e || e.contains(top) || top && top.contains(e); })(document.querySelector(%s))" % json.dumps(selector))
    check(at, "%s: something lies over %s" % (what, selector))


# ── areas ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Pixels of each class on the map of addresses, as they are on the canvas; those of free addresses last.
MAP = """(() => { const p = shardc.painter, c = p.canvas.getContext('2d'), y = p.addressesAt - p.top, r = p.ratio, word = ([r, g, b]) => r << 16 | g << 8 | b, of = new Map();
  p.classes.forEach((colour, i) => { const x = rgb(colour); of.set(word(x), i); of.set(word(x.map(v => v * .72 | 0)), i); });
  of.set(word(rgb(p.colour.band)), p.classes.length);
  const left = LEFT * r, { data, width } = c.getImageData(left, Math.round(y * r), p.canvas.width - left, Math.round(p.mapHeight * r)), counts = new Array(p.classes.length + 1).fill(0);
  let other = 0;
  for (let i = 0; i < data.length; i += 4) { const k = of.get(data[i] << 16 | data[i + 1] << 8 | data[i + 2]); if (k === undefined) other++; else counts[k]++; }
  return { counts, other, width, rows: Math.round(p.mapHeight * r), t0: shardc.state.t0, t1: shardc.state.t1, classes: shardc.state.plan.classes }; })()"""


def areas(plan, t0, t1, low=0, high=None):
    """Of each class: bytes between two addresses times time in the range, over what the arena has in it."""
    high = plan["peak"]["bytes"] if high is None else high
    program = next(p for p in plan["programs"] if p["name"] == "micro")
    begin, end = {}, {}
    for e in program["events"]:
        for s in {s for s, _, _ in e["reads"] + e["writes"]}:
            begin[s] = min(begin.get(s, 1e30), e["start_us"])
            end[s] = max(end.get(s, 0), e["start_us"] + e["duration_us"])
    whole, of = (high - low) * (t1 - t0), {}
    for s in plan["storages"]:
        if s["arena"] != "device" or s.get("program", "micro") != "micro":
            continue
        a, z = (0, 1e30) if "program" not in s else (begin.get(s["id"], 0), end.get(s["id"], 0))
        of[s["class"]] = of.get(s["class"], 0) + max(0, min(s["offset"] + s["size"], high) - max(s["offset"], low)) * max(0, min(z, t1) - max(a, t0)) / whole
    return of


def test_map_of_addresses():
    """The share of each class on the map is that of its bytes times their time; a class is wrong by less than a pixel a column, wherever it is looked at."""
    worst, compared = 0, 0
    for name, args in (("405b", LLAMA_405B), ("8b", LLAMA_8B), ("small", GPT2), ("deep", DEEP)):
        page = written(name, args)
        plan = json.loads(shardc("inspect", os.path.join(ROOT, "models", args[0]), *args[1:], "--format", "json"))
        with Browser(1440, 1100) as b:
            b.open(page)
            step = b.run("shardc.state.program.duration")
            for from_, to in ((.001, .999), (.3, .32), (.6, .95)):
                b.run("shardc.view(%r, %r); document.querySelector('#scroll').scrollTop = 1e6" % (from_ * step, to * step))
                b.mouse("mouseMoved", 5, 5)
                b.settle()
                got = b.run(MAP)
                want = areas(plan, got["t0"], got["t1"])
                check(got["other"] < got["width"], "%s: %d pixels of the map have no class's colour" % (name, got["other"]))
                want["free"] = 1 - sum(want.values())
                for cls, pixels in zip(got["classes"] + ["free"], got["counts"]):
                    off = abs(pixels / got["width"] - want.get(cls, 0) * got["rows"])
                    worst, compared = max(worst, off), compared + 1
                    check(off < 1, "%s, %g to %g of the step: %s fills %.2f %% of the map, by bytes and time %.2f %%" % (name, from_, to, cls, 100 * pixels / got["width"] / got["rows"], 100 * want.get(cls, 0)))
    return "%d shares, worst off by %.2f of %d rows" % (compared, worst, got["rows"])


def test_map_fills_its_window_and_zooms():
    """The map reaches down to where the stage ends. F on a storage zooms to it, Alt with the wheel to the address under the pointer, a drag pans, 0 shows all of
    it; what is drawn then has the area of its bytes and their time, and a click finds what is there."""
    page = written("8b", LLAMA_8B)
    plan = json.loads(shardc("inspect", os.path.join(ROOT, "models", LLAMA_8B[0]), *LLAMA_8B[1:], "--format", "json"))
    seen = "[shardc.painter.map, shardc.painter.mapHeight, shardc.painter.addressesAt - shardc.painter.top, shardc.state.addresses === null]"
    compared = 0
    for width, height in ((1280, 1000), (1920, 1080), (1920, 1400)):
        with Browser(width, height) as b:
            b.open(page)
            box = where(b, "#scroll")
            map_, tall, top, whole = b.run(seen)
            check(whole and (tall == 640 or abs(box[1] + top + tall - box[3]) < 12), "%d x %d: the map is %d pixels tall from %d on, the stage ends at %d" % (width, height, tall, top, box[3] - box[1]))
            s = next(s for s in plan["storages"] if s.get("program") == "micro" and s["class"] == "activations" and s["size"] > 1 << 27)
            b.run("shardc.select({ storage: %d }, true); document.querySelector('#canvas').focus()" % s["id"])
            b.press("f")
            map_, tall, top, whole = b.run(seen)
            check(map_[0] <= s["offset"] and s["offset"] + s["size"] <= map_[1] and map_[1] - map_[0] < 2 * s["size"] + 1024, "F shows addresses %s of %s" % (map_, s))
            b.run("shardc.select(null)")
            b.settle()
            got = b.run(MAP)
            want = areas(plan, got["t0"], got["t1"], *map_)
            want["free"] = 1 - sum(want.values())
            for cls, pixels in zip(got["classes"] + ["free"], got["counts"]):
                compared += 1
                check(abs(pixels / got["width"] - want.get(cls, 0) * got["rows"]) < 1.5, "%d x %d, zoomed: %s fills %.2f %% of the map, by bytes and time %.2f %%" % (width, height, cls, 100 * pixels / got["width"] / got["rows"], 100 * want.get(cls, 0)))
            x, y = b.run("(p => [(p.x(shardc.state.program.from[%d]) + p.x(shardc.state.program.to[%d])) / 2, p.addressesAt - p.top + (%d - p.map[0]) * p.mapScale])(shardc.painter)" % (s["id"], s["id"], s["offset"] + s["size"] // 2))
            b.click(box[0] + x, box[1] + y)
            check(b.run("shardc.state.selection && shardc.state.selection.storage") == s["id"], "a click in the zoomed map selects %s" % b.run("JSON.stringify(shardc.state.selection)"))
            under = "shardc.painter.addressAt(%r + shardc.painter.top)" % y
            before, wide = b.run(under), map_[1] - map_[0]
            b.mouse("mouseWheel", box[0] + x, box[1] + y, deltaX=0, deltaY=-120, modifiers=1)
            b.settle()
            map_, *_ = b.run(seen)
            check(map_[1] - map_[0] < wide and abs(b.run(under) - before) < 2 * wide / tall, "Alt with the wheel takes the map to %s" % map_)
            b.mouse("mousePressed", box[0] + x, box[1] + y, button="left", clickCount=1)
            b.mouse("mouseMoved", box[0] + x, box[1] + y - 40, button="left", buttons=1)
            b.mouse("mouseReleased", box[0] + x, box[1] + y - 40, button="left", clickCount=1)
            b.settle()
            check(b.run(seen)[0][0] > map_[0], "a drag takes the map from %s to %s" % (map_, b.run(seen)[0]))
            b.press("0")
            check(b.run(seen)[3] and b.run(seen)[0] == [0, plan["peak"]["bytes"]], "0 shows addresses %s" % b.run(seen)[0])
            quiet(b, page)
    return "%d shares" % compared


def test_small_storages_are_found():
    """A storage that is smaller than a pixel is what a click at its middle selects, or one of the next clicks there."""
    page = written("405b", LLAMA_405B)
    with Browser(1440, 1100) as b:
        b.open(page)
        b.run("document.querySelector('#to-all').click(); document.querySelector('#scroll').scrollTop = 1e6")
        b.settle()
        small = b.run("""(() => { const p = shardc.painter, g = shardc.state.program, tall = p.mapScale;
          const all = g.storages.filter(s => s.arena === 0 && s.size * tall < .3 && s.size * tall > 0 && g.to[s.index] > g.from[s.index]);
          return [0, .3, .5, .7, .9].map(f => all[Math.floor(f * all.length)]).map(s => [s.index, (p.x(g.from[s.index]) + p.x(g.to[s.index])) / 2, p.addressesAt - p.top + (s.offset + s.size / 2) * tall]); })()""")
        box = where(b, "#canvas")
        for index, x, y in small:
            b.run("shardc.select(null)")
            for clicks in range(1, 40):
                b.click(box[0] + x, box[1] + y)
                if b.run("shardc.state.selection && shardc.state.selection.storage") == index:
                    break
            check(clicks < 39, "storage %d is not found at its place" % index)
        quiet(b, page)
    return "%d storages" % len(small)


# Filled pixels of a stream's row, over all of the range that is seen; without the red lines of idle time and the lines where the program begins and ends.
ROW = """(stream => { const p = shardc.painter, c = p.canvas.getContext('2d'), row = p.streamRows.find(r => r.name === stream), ground = rgb(p.colour.ground), line = rgb(p.colour.line);
  p.idle = () => {}; p.gridOf = () => {}; p.draw(p.top);
  const { data } = c.getImageData(LEFT, row.y - p.top + 2, p.width - LEFT, STREAM_ROW - 4);
  let ink = 0, all = 0;
  for (let i = 0; i < data.length; i += 4, all++) ink += [0, 1, 2].some(k => data[i + k] !== ground[k]);
  return ink / all; })(%s)"""


def test_streams_by_their_time():
    """A stream's row is filled by as much as its events take of the time, though each is narrower than a pixel; one that is hardly used is seen all the same."""
    said = []
    for name, args, stream, least in (("405b", LLAMA_405B, "compute", 0), ("deep", DEEP, "compute", 0), ("deep", DEEP, "gather", .12)):
        page = written(name, args)
        with Browser(1440, 1100) as b:
            b.open(page)
            step = b.run("shardc.state.program.duration")
            b.run("shardc.view(0, %r); document.querySelector('#scroll').scrollTop = 0" % step)
            b.settle()
            got = b.run(ROW % json.dumps(stream))
            busy = b.run("(g => { const s = g.streams.find(s => s.name === %s); let sum = 0; for (let k = 0; k < s.order.length; k++) sum += s.ends[k] - s.starts[k]; return sum / g.duration; })(shardc.state.program)" % json.dumps(stream))
        check(abs(got - busy) < max(.04, least) and got > 0, "%s of %s is busy for %.1f %% of the step, and fills %.1f %% of its row" % (stream, name, 100 * busy, 100 * got))
        said.append("%s %s %.1f %%, drawn %.1f %%" % (name, stream, 100 * busy, 100 * got))
    return "; ".join(said)


# ── what is asked for is in sight ────────────────────────────────────────────────────────────────────────────────────────────
def click_event(b, names):
    """Clicks on the middle of the longest event of compute; narrow windows are scrolled to the streams first."""
    b.run("document.querySelector('#scroll').scrollTop = 0; document.querySelector('#canvas').scrollIntoView({ block: 'start' })")
    b.settle()
    box = where(b, "#canvas")
    x, y = b.run("""(() => { const p = shardc.painter, g = %s, row = p.streamRows[0];
      const e = row.order.reduce((a, e) => g.end[e] - g.start[e] > g.end[a] - g.start[a] ? e : a); return [(p.x(g.start[e]) + p.x(g.end[e])) / 2, row.y - p.top + 10]; })()""" % names)
    b.click(box[0] + x, box[1] + y)
    return box[0] + x, box[1] + y


def click_memory(b):
    b.run("document.querySelector('#canvas').scrollIntoView({ block: 'end' }); document.querySelector('#scroll').scrollTop = 1e6")
    b.settle()
    box = where(b, "#canvas")
    b.click(box[0] + 160, box[1] + b.run("shardc.painter.memoryAt - shardc.painter.top + 100"))


def tools_stand_together(b, what):
    tops = b.run("[...document.querySelectorAll('#bar button')].filter(e => e.getClientRects().length).map(e => Math.round(e.getBoundingClientRect().top))")
    check(tops.count(tops[-1]) > 1, "%s: the last button stands alone: %s" % (what, tops))
    check(b.run("document.documentElement.scrollWidth <= innerWidth"), "%s: the page is wider than its window" % what)


def test_plan_in_every_window():
    """A click, the peak and a click on the curve of memory bring what they ask for into sight."""
    page = written("8b", LLAMA_8B)
    for width in WIDTHS:
        with Browser(width, 900) as b:
            b.open(page)
            tools_stand_together(b, "%d pixels" % width)
            click_event(b, "shardc.state.program")
            in_sight(b, "#selection h2", "%d pixels, a click on an event" % width)
            b.press("Escape")
            click_memory(b)
            in_sight(b, "#live h2", "%d pixels, a click on the curve" % width)
            in_sight(b, "#live summary", "%d pixels, a click on the curve" % width)
            check(where(b, "#selection h2") is None, "%d pixels: the event stands beside the live set" % width)
            click_event(b, "shardc.state.program")
            in_sight(b, "#selection h2", "%d pixels, a click on an event after one on the curve" % width)
            check(where(b, "#live h2") is None, "%d pixels: the live set stands beside the event" % width)
            b.press("Escape")
            b.click_on("#to-peak")
            in_sight(b, "#live h2", "%d pixels, the peak" % width)
            check(b.run("document.querySelector('#live h2').textContent").startswith("Alive at the peak, "), "the live set at the peak is called " + b.run("document.querySelector('#live h2').textContent"))
            b.run("document.querySelector('#tab-memory-tab').scrollIntoView({ block: 'nearest' })")
            b.click_on("#tab-memory-tab")
            click_event(b, "shardc.state.program")
            in_sight(b, "#live h2", "%d pixels, a click on an event while the tab of memory was chosen" % width)
            b.click_on("#tab-waits-tab")
            b.run("document.querySelector('#to-peak').scrollIntoView({ block: 'center' })")
            b.click_on("#to-peak")
            in_sight(b, "#live h2", "%d pixels, the peak while another tab was chosen" % width)
            b.click_on("#tab-selection-tab")
            in_sight(b, "#selection h2", "%d pixels, the tab of what is selected" % width)
            if width < 900:
                b.click_on("#sheet-close")
                check(b.run("shardc.state.selection === null && !document.querySelector('aside').matches('.sheet')"), "%d pixels: the sheet stays" % width)
                for tab, wanted in (("time", "#sums h2"), ("memory", "#live h2"), ("selection", "#selection p")):
                    b.run("document.querySelector('#tab-%s-tab').scrollIntoView({ block: 'center' })" % tab)
                    b.click_on("#tab-%s-tab" % tab)
                    in_sight(b, wanted, "%d pixels, a click on the tab %s while the sheet was closed" % (width, tab))
                    check(b.run("document.querySelector('aside').matches('.sheet')"), "%d pixels: the tab %s opens no sheet" % (width, tab))
                    b.click_on("#sheet-close")
            b.run("document.querySelector('#search').scrollIntoView()")
            b.search("lm_head")
            b.settle()
            in_sight(b, "#results li", "%d pixels, a search" % width)
            b.run("document.querySelector('#results li').click()")
            b.settle()
            in_sight(b, "#selection h2", "%d pixels, what was found" % width)
            quiet(b, page)
    return "%d widths" % len(WIDTHS)


def test_keys_open_at_their_top():
    """The dialog of keys is longer than a low window: it opens at its title, by the key and by the button, again after it was scrolled; arrows scroll it."""
    page = written("keys", GPT2)
    for width in (1440, 390):
        with Browser(width, 500) as b:
            b.open(page)
            for opens in (lambda: b.press("?"), lambda: b.run("document.querySelector('#help-open').click()")):
                opens()
                b.settle()
                top, most, focus = b.run("(e => [e.scrollTop, e.scrollHeight - e.clientHeight, document.activeElement === e])(document.querySelector('#help'))")
                check(top == 0 and most > 200 and focus, "%d pixels: the keys open at %s of %s, the focus is on them: %s" % (width, top, most, focus))
                in_sight(b, "#help-title", "%d pixels, the keys" % width)
                b.run("document.querySelector('#help').scrollTop = 1e6, document.querySelector('#help-close').click()")
            quiet(b, page)


def test_ruler():
    """Ticks of a program of seconds: none is before 0, no two say the same, each says its time in a unit in which the latest time that is seen is less than a
    thousand; from the whole program down to a nanosecond."""
    page, seen = written("ruler", LLAMA_405B), set()
    with Browser(1440, 900) as b:
        b.open(page)
        end = b.run("extent()")
        check(end > 1e6, "the program takes %s us" % end)
        for a, z in ((-.01 * end, 1.02 * end), (-50, 50), (-.5, .6), (-3e3, 9e3), (5e3, 5e3 + 100), (.5 * end, .5 * end + 2), (end - 1e-3, end + 1e-3), (1.1e6, 1.3e6)):
            b.run("shardc.view(%r, %r)" % (a, z))
            b.settle()
            at, texts, last = b.run("(p => [p.ticks.at, p.ticks.at.map(t => p.tickText(t)), Math.min(shardc.state.t1, extent())])(shardc.painter)")
            check(len(at) >= 3 and min(at) >= 0 and len(set(texts)) == len(texts) and not any("-" in t for t in texts), "%s to %s us: %s" % (a, z, texts[:5]))
            for t, text in zip(at, texts):
                value, unit = text.split()
                us = {"us": 1, "ms": 1e3, "s": 1e6}[unit]
                check(abs(float(value) * us - t) < 1e-2 * (at[1] - at[0]) + 1e-14 * t and (last < 1e3 * us or unit == "s") and (last >= us or unit == "us"), "%s to %s us: at %s stands %s" % (a, z, t, text))
                seen.add(unit)
        quiet(b, page)
    check(seen == {"us", "ms", "s"}, "units are %s" % seen)


def test_diff_in_every_window():
    page = written("diff", LLAMA_8B, "--vs", "--set", "recompute=full")
    for width in WIDTHS:
        with Browser(width, 900) as b:
            b.open(page)
            tools_stand_together(b, "%d pixels" % width)
            click_event(b, "shardc.state.program.a")
            in_sight(b, "#selection h2", "%d pixels, a click on an event" % width)
            b.press("Escape")
            click_memory(b)
            in_sight(b, "#live h2", "%d pixels, a click on the curve" % width)
            rows = dict(b.run("[...document.querySelectorAll('#live tr[data-sum]')].map(r => [r.dataset.sum, [Number(r.dataset.a), Number(r.dataset.b)]])"))
            for k in range(2):
                check(rows["all"][k] == sum(r[k] for name, r in rows.items() if name != "all") > 0, "alive at the cursor: %s" % rows)
            b.press("Escape")
            check(b.run("document.querySelector('#live').children.length") == 0, "Escape leaves the live set")
            b.click_on("#peak-a")
            in_sight(b, "#sums caption", "%d pixels, the peak" % width)
            quiet(b, page)
    return "%d widths" % len(WIDTHS)


def test_double_click():
    """It zooms to what is there; only where nothing is it shows the whole program."""
    for page, names in ((written("8b", LLAMA_8B), "shardc.state.program"), (written("diff", LLAMA_8B, "--vs", "--set", "recompute=full"), "shardc.state.program.a")):
        with Browser(1440, 900) as b:
            b.open(page)
            view = lambda: b.run("[shardc.state.t0, shardc.state.t1]")

            def double(x, y):
                b.click(x, y)
                for kind in ("mousePressed", "mouseReleased"):
                    b.mouse(kind, x, y, button="left", clickCount=2)
                b.settle()
            duration = b.run("shardc.state.program.duration")
            b.run("shardc.view(%r, %r)" % (.2 * duration, .6 * duration))
            x, y = click_event(b, names)
            span = b.run("(g => { const e = shardc.state.selection.event, k = e.a ?? e; return [g.start[k], g.end[k]]; })(%s)" % names)
            double(x, y)
            seen = view()
            check(seen[0] < span[0] and span[1] < seen[1] and seen[1] - seen[0] < 4 * (span[1] - span[0]), "a double click on an event of %s shows %s" % (span, seen))
            box = where(b, "#canvas")
            b.run("shardc.view(%r, %r); document.querySelector('#scroll').scrollTop = 1e6" % (.2 * duration, .6 * duration))
            b.settle()
            before = view()
            double(box[0] + 500, box[1] + b.run("shardc.painter.memoryAt - shardc.painter.top + 100"))
            check(view() == before, "a double click on the curve of memory goes to %s" % view())
            b.run("document.querySelector('#scroll').scrollTop = 0")
            b.settle()
            double(box[0] + 500, box[1] + b.run("shardc.painter.sections.streams - shardc.painter.top + 8"))
            check(view()[0] < 0 and view()[1] > duration, "a double click on empty ground shows %s of %s" % (view(), duration))
            quiet(b, page)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_runs_in_every_window():
    """Curves fill the window; the values of every run are in sight, at the cursor and at the end."""
    folder = scratch("page_view")
    logs = [os.path.join(folder, "run-%d.jsonl" % k) for k in range(1, 5)]
    for k, log in enumerate(logs):
        made(log, 60, seed=k)
    for runs in (3, 4):
        page = os.path.join(folder, "runs.html")
        shardc("report", *logs[:runs], "-o", page)
        for width in WIDTHS:
            with Browser(width, 844) as b:
                b.open(page)
                what = "%d runs, %d pixels" % (runs, width)
                tools_stand_together(b, what)
                right = b.run("Math.max(...[...document.querySelectorAll('.chart')].map(e => e.getBoundingClientRect().right))")
                charts = where(b, "#charts")
                check(right > charts[2] - 40 and (width > 900 or charts[2] - charts[0] > width - 2), "%s: curves end at %s, their place is %s" % (what, right, charts))
                box = where(b, ".chart canvas")
                b.click((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
                b.settle()
                in_sight(b, "#at-title", what)
                in_sight(b, "#at td[data-figure]", what)
                cut = b.run("""['#at', '#totals'].flatMap(id => { const table = document.querySelector(id), within = table.parentElement.getBoundingClientRect();
                  return [...table.querySelectorAll('td')].filter(td => td.getClientRects().length && (r => r.right > within.right + 1 || r.left < within.left - 1)(td.getBoundingClientRect())).map(td => id + ' ' + td.textContent); })""")
                check(not cut, "%s: cut off are %s" % (what, cut[:4]))
                check(b.run("[...new Set([...document.querySelectorAll('#at td[data-figure=loss]')].map(e => e.dataset.run))].length") == runs, "%s: values at the cursor are missing" % what)
                if width < 900:
                    b.click_on("#sheet-close")
                    check(not b.run("document.querySelector('aside').matches('.sheet')"), "%s: the sheet stays" % what)
                quiet(b, page)
    return "%d windows" % (2 * len(WIDTHS))
