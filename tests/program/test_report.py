"""Runs from their logs: `shardc report` as page, text and JSON, and the page that `--report` of a program writes while it runs. Every figure is
compared with the log, which is read here by other means; names run nothing; damaged logs are refused with file and line.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import fcntl
import json
import math
import os
import pty
import random
import re
import signal
import statistics
import struct
import subprocess
import termios
import time
import unicodedata

from browser import Browser, accessible
from harness import HANG, ROOT, SHARDC, build, check, command, corpus, must, scratch, shardc

# Metrics of a model, one of them with a name that would end the page's block of data.
HOSTILE_METRIC = "</script><script>window.ran = 1</script>"
MODEL = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(256, 8)
model.out = nn.Linear(8, 256)
function model:forward(tokens)
  local x = self.embed(tokens)
  nn.log_metric("mean of x", nn.mean(x))
  nn.log_metric("%s", nn.mean(x * x))
  return self.out(x)
end
return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 16 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 16 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 1e-2 },
}
""" % HOSTILE_METRIC


def lines_of(path):
    return [line for line in map(json.loads, open(path)) if "end" not in line]


def program():
    path = os.path.join(scratch("report"), "net.lua")
    with open(path, "w") as f:
        f.write(MODEL)
    return build(path, world=2)


def made(path, steps, model="net", restarts=(), seed=1, every=10, **more):
    """Writes a log as a program would; returns its lines."""
    r, lines, seconds = random.Random(seed), [], lambda: float("%.9g" % (.01 + .002 * r.random()))
    start = lambda step: {"step": step, "model": model, "target": "cpu", "start": "2026-01-02T03:04:05Z", "world": 2, "steps": steps, "predicted_step_s": .0095,
                          "arena_bytes": 123456, "arena_allocated": 123456, "host_bytes": 77, "usable_bytes": 500000, "peak parameters": 20000, "peak optimizer state": 40000, "peak activations": 60000, "epoch": 5000}
    lines.append(start(0))
    for step in range(1, steps + 1):
        lines.append({"step": step, "loss": float("%.9g" % (1 + 4 * math.exp(-step / 40) + .2 * r.random())), "grad_norm": float("%.9g" % r.random()), "lr": float("%.9g" % (1e-3 * min(1, step / 20))),
                      "tokens": 64 * step, "tok_s": float("%.9g" % (5000 + 500 * r.random())), "seconds": seconds(), **{k: float("%.9g" % r.random()) for k in more}})
        if step % every == 0:
            lines.append({"step": step, "val_loss": float("%.9g" % (1 + 3 * math.exp(-step / 40))), "val_targets": 512, "seconds": seconds()})
        if step in restarts:
            lines.append(start(step))
    with open(path, "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in lines)
    return lines


# ── what a log holds, found the simple way ───────────────────────────────────────────────────────────────────────────────────
def rows(log, key):
    """[(step, value)] of the lines that have it; a step's and a validation's seconds are two figures."""
    table, key = key if isinstance(key, tuple) else ("validations" if key.startswith("val_") else "steps", key)
    return [(line["step"], line[key]) for line in log if "model" not in line and key in line and ("val_loss" in line) == (table == "validations")]


def finals(log):
    """What the table of final values shall hold, by key."""
    steps, starts = [line for line in log if "loss" in line], [line for line in log if "model" in line]
    restarts = [s for i, s in enumerate(starts) if i or s["step"]]
    want = {"steps": len(steps), "last_step": steps[-1]["step"], "restarts": len(restarts), "seconds": sum(line.get("seconds", 0) for line in log)}
    for key in ("loss", "val_loss"):
        if rows(log, key):
            values = [v for _, v in rows(log, key)]
            want.update({key + "_first": values[0], key + "_last": values[-1], key + "_best": min(values)})
    want["tok_s"] = statistics.median(line["tok_s"] for line in steps)
    want["actual_s"] = statistics.median(line["seconds"] for line in steps)
    want["position"] = steps[-1]["tokens"]
    want["last grad_norm"], want["last lr"] = steps[-1]["grad_norm"], steps[-1]["lr"]
    own = {"step", "loss", "grad_norm", "lr", "tokens", "tok_s", "seconds"}
    want.update({"metric " + k: v for k, v in steps[-1].items() if k not in own})
    if starts:
        last = starts[-1]
        want.update(arena=last["arena_bytes"], allocated=last["arena_allocated"], epochs=want["position"] / last["epoch"], predicted_s=last["predicted_step_s"], ratio=want["actual_s"] / last["predicted_step_s"])
        if last["host_bytes"]:
            want["host"] = last["host_bytes"]
    return want


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def quiet(b, page):
    check(not b.complaints, "the page complains: %s" % b.complaints[:3])
    check(b.requests == ["file://" + page], "the page asks for more than itself: %s" % b.requests)


TOTALS = "[...document.querySelectorAll('#totals td[data-key]')].map(e => [e.dataset.key, Number(e.dataset.run), Number(e.dataset.value), e.textContent])"


def totals(b, logs):
    shown = b.run(TOTALS)
    want = {(k, i): v for i, log in enumerate(logs) for k, v in finals(log).items()}
    check({(k, i) for k, i, _, _ in shown if not k.startswith("setting ")} == set(want), "final values differ: %s" % sorted({(k, i) for k, i, _, _ in shown if not k.startswith("setting ")} ^ set(want))[:8])
    for key, i, value, text in (x for x in shown if not x[0].startswith("setting ")):
        check(near(value, want[key, i]), "%s of run %d is shown as %s, the log says %s" % (key, i, value, want[key, i]))
        digits = re.match(r"[−-]?[\d,.]+", text)  # as people read it: at least three digits are right
        unit = 1e3 if re.match(r"[\d.]+ ms", text) else 1e6 if re.match(r"[\d.]+ us", text) else 1
        read = float(digits[0].replace("−", "-").replace(",", "")) if digits and not re.search(r"[KMG]iB|e| min| h ", text) else value * unit
        check(abs(read - value * unit) <= 5e-3 * abs(value * unit) + 5e-3 * (unit > 1 or key == "ratio"), "%s: %s is printed as %s" % (key, value, text))
    return len(shown)


def memory(b, logs):
    """How many figures of the memory panel were compared."""
    read = lambda selector, key: {(int(run), name): int(value) for run, name, value in b.run("[...document.querySelectorAll('%s')].map(e => [e.dataset.run, e.dataset.%s, e.dataset.value])" % (selector, key))}
    shown, parts = read("#memory td[data-memory]", "memory"), read("#memory li[data-class]", "class")
    want, want_parts = {}, {}
    for i, log in enumerate(logs):
        last = [line for line in log if "model" in line][-1]
        used = [line for line in log if "device_bytes_used" in line]
        rows_of = {"arena": last["arena_bytes"], "allocated": last["arena_allocated"], "usable": last.get("usable_bytes", 0), "host": last["host_bytes"],
                   "device_predicted": used[-1]["device_bytes_predicted"] if used else 0, "device_used": max((u["device_bytes_used"] for u in used), default=0)}
        want.update({(i, k): v for k, v in rows_of.items() if v})
        classes = {k[5:]: v for k, v in last.items() if k.startswith("peak ")}
        if sum(classes.values()) < last["arena_bytes"]:
            classes["between storages"] = last["arena_bytes"] - sum(classes.values())
        want_parts.update({(i, k): v for k, v in classes.items()})
    check(shown == want and parts == want_parts, "memory: %s, wanted %s; %s, wanted %s" % (shown, want, parts, want_parts))
    for run, key in want:  # lengths of the bars go by the largest
        wide = b.run("(() => { const row = document.querySelector('td[data-memory=\"%s\"][data-run=\"%d\"]').closest('tr'), box = e => e.getBoundingClientRect().width; return [...row.querySelectorAll('.part')].reduce((s, e) => s + box(e), 0) / box(row.querySelector('.bar')); })()" % (key, run))
        check(abs(wide - want[run, key] / max(want.values())) < .02, "the bar of %s of run %d is %s of the widest" % (key, run, wide))
    return len(shown) + len(parts)


CURSOR = """(x => { report.setCursor(x); return new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(
  [...document.querySelectorAll('#at td[data-figure]')].map(e => [e.dataset.table, e.dataset.figure, Number(e.dataset.run), Number(e.dataset.step), e.dataset.value === 'null' ? null : Number(e.dataset.value)]))))); })(%r)"""


def cursors(b, logs, axis):
    """At some places of an axis, what is shown of every run and figure: the value of the nearest line of the log."""
    n = 0
    b.run("report.setAxis(%s)" % json.dumps(axis))
    where = []
    for log in logs:
        tables, seconds, tokens = {"steps": [], "validations": []}, 0, 0
        for line in (line for line in log if "model" not in line and "device_bytes_used" not in line):
            seconds, tokens = seconds + line.get("seconds", 0), line.get("tokens", tokens)
            x = {"step": line["step"], "time": seconds, "position": tokens}[axis]
            tables["validations" if "val_loss" in line else "steps"].append((x, line))
        where.append(tables)
    end = max(t["steps"][-1][0] for t in where)
    for part in (0, .013, .37, .5, .77, 1, 1.2):
        x = part * end
        shown = b.run(CURSOR % x)
        keys = set()
        for table, figure, run, step, value in shown:
            at = where[run][table]
            best = min(abs(a - x) for a, _ in at)
            lines = [line for a, line in at if abs(a - x) <= best * (1 + 1e-9) + 1e-12]
            check(any(line["step"] == step and line[figure] == value for line in lines), "at %s %s, %s of run %d is shown as %s (step %s), wanted %s" % (axis, x, figure, run, value, step, lines))
            keys.add((table, figure, run))
            n += 1
        want = {(table, key, run) for run, t in enumerate(where) for table in t for _, line in t[table] for key in line if key != "step"}
        check(keys == want, "at %s %s: %s" % (axis, x, sorted(keys ^ want)[:5]))
    return n


def drawn(b):
    """Curves have their runs' colours; a run that is hidden has none, smoothing and a log scale change the picture."""
    picture = lambda: b.run("(() => { report.charts[0].draw(); const c = document.querySelector('.chart canvas'), k = document.createElement('canvas'); k.width = c.width; k.height = c.height; const g = k.getContext('2d', { willReadFrequently: true }); g.drawImage(c, 0, 0); const d = g.getImageData(0, 0, c.width, c.height).data, n = {}; for (let i = 0; i < d.length; i += 4) { const k = d[i] + ',' + d[i + 1] + ',' + d[i + 2]; n[k] = (n[k] || 0) + 1; } return n; })()")
    colour = b.run("report.state.colour.runs.slice(0, 2).map(c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16)).join(','))")
    b.run("report.setAxis('step'); report.setCursor(null)")
    first = picture()
    check(all(first.get(c, 0) > 30 for c in colour), "runs are drawn in %s pixels" % [first.get(c) for c in colour])
    b.click_on("#legend [data-run='1']")
    check(b.run("document.querySelector('#legend [data-run=\"1\"]').getAttribute('aria-pressed')") == "false", "the legend does not say that a run is hidden")
    hidden = picture()
    check(hidden.get(colour[1], 0) == 0 and hidden.get(colour[0], 0) > 30, "a hidden run is drawn")
    b.click_on("#legend [data-run='1']")
    b.run("document.querySelector('#smooth').value = .9; document.querySelector('#smooth').dispatchEvent(new Event('input'))")
    check(picture() != first, "smoothing changes nothing")
    b.run("document.querySelector('#smooth').value = 0; document.querySelector('#smooth').dispatchEvent(new Event('input'))")
    b.click_on("#log")
    check(picture() != first, "a log scale changes nothing")
    b.click_on("#log")
    check(picture() == first, "the picture does not come back")


def smoothing(b, log):
    by, values = .8, [v for _, v in rows(log, "loss")]
    b.run("report.setSmooth(%g)" % by)
    shown, total, weight = b.run("report.charts[0].curve(report.data.runs[0]).y"), 0, 0
    for got, v in zip(shown, values):
        total, weight = by * total + (1 - by) * v, by * weight + 1 - by
        check(near(got, total / weight), "smoothed: %s, wanted %s" % (got, total / weight))
    charts = b.run("report.charts.map(c => [c.figure.title, report.data.runs.some(r => { const k = c.curve(r); return k && new Set(k.raw).size > 1 && k.y.some((y, i) => y !== k.raw[i]); })])")
    constant = ("targets of a validation",)
    check(all(is_smooth or title in constant for title, is_smooth in charts), "these are not smoothed: %s" % [t for t, s in charts if not s])
    b.run("report.toggle(report.data.runs[1]); const made = report.charts.find(c => c.figure.key === 'lr').curve(report.data.runs[0]); made.raw = made.y = made.y.map((v, i) => i % 2 ? 0.001 : 0.0010000000000000002)")
    check(b.run("(() => { const c = report.charts.find(c => c.figure.key === 'lr'); c.draw(); return c.y1 - c.y0; })()") > 1e-6, "what rounding leaves of a constant is an axis")
    b.run("report.toggle(report.data.runs[1])")
    b.run("report.setSmooth(0)")


def difference(b, logs):
    """Curves minus the first run's: at a step of both, the difference of their values; along a line between its steps; nothing outside of them."""
    b.run("report.setAxis('step'); const chosen = document.querySelector('#against'); chosen.value = '0'; chosen.dispatchEvent(new Event('change'))")
    for index, key in ((0, "loss"), (0, "grad_norm"), (1, "loss")):
        of, base = dict(rows(logs[index], key)), dict(rows(logs[0], key))
        x, y = b.run("(() => { const c = report.charts.find(c => c.figure.key === '%s').curve(report.data.runs[%d]); return [c.x, c.y]; })()" % (key, index))
        check(len(x) == len(of) and all(near(got + 1, of[step] - base[step] + 1) for step, got in zip(x, y)), "%s of run %d: %s" % (key, index, y[:5]))
    x, y = b.run("(() => { const c = report.charts.find(c => c.figure.key === 'val_loss').curve(report.data.runs[1]); return [c.x, c.y]; })()")
    of, base = dict(rows(logs[1], "val_loss")), dict(rows(logs[0], "val_loss"))
    for step, got in zip(x, y):
        low, high = max((s for s in base if s <= step), default=None), min((s for s in base if s >= step), default=None)
        want = None if low is None or high is None else of[step] - (base[low] if low == high else base[low] + (base[high] - base[low]) * (step - low) / (high - low))
        check((got is None) == (want is None) and (got is None or near(got + 1, want + 1)), "at step %d: %s, wanted %s" % (step, got, want))
    b.run("report.setCursor(70)")
    b.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    said = b.run("document.querySelector('#at td[data-figure=\"loss\"][data-run=\"1\"]').textContent")
    less = dict(rows(logs[1], "loss"))[70] - dict(rows(logs[0], "loss"))[70]
    check(said.endswith(" (%s%s)" % ("\u2212" if less < 0 else "+", b.run("numberText(%.17g)" % abs(less)))), "the cursor says " + said)
    check(b.run("report.charts[0].heading.textContent") == "loss, minus a.jsonl", "the chart is called " + b.run("report.charts[0].heading.textContent"))
    best = [min(v for _, v in rows(log, "loss")) for log in logs]
    said = b.run("document.querySelector('#totals td[data-key=\"loss_best\"][data-run=\"1\"]').textContent")
    share = 100 * (best[1] / best[0] - 1)
    check(said.endswith("(%s%.*f %%)" % ("\u2212" if share < 0 else "+", 2 if abs(share) < 10 else 1, abs(share))), "the table says " + said)
    b.run("report.setAgainst(null)")
    check(b.run("report.charts[0].curve(report.data.runs[0]).raw[0]") == rows(logs[0], "loss")[0][1], "the curves do not come back")


def test_outliers():
    """What lies further from the middle 96 of 100 than these are wide is left out of the axis, and a mark says how many points and how far; a button
    brings it back. Few values, and those without outliers, are shown whole."""
    folder = scratch("report")
    path, page = os.path.join(folder, "spikes.jsonl"), os.path.join(folder, "spikes.html")
    log = made(path, 400)
    spikes = {50: 900.0, 200: 1234.5, 300: -77.0}
    for line in log:
        if line.get("step") in spikes and "grad_norm" in line:
            line["grad_norm"] = spikes[line["step"]]
    with open(path, "w") as f:
        f.writelines(json.dumps(line) + "\n" for line in log)
    shardc("report", path, "-o", page)
    axis = "(() => { const c = report.charts.find(c => c.figure.key === '%s'); c.draw(); return [c.y0, c.y1, c.outside]; })()"
    values = sorted(v for _, v in rows(log, "grad_norm"))
    low, high = values[int((len(values) - 1) * .02)], values[math.ceil((len(values) - 1) * .98)]
    with Browser() as b:
        b.open(page)
        y0, y1, outside = b.run(axis % "grad_norm")
        room = .06 * (3 * (high - low))
        check(near(y0, low - (high - low) - room) and near(y1, high + (high - low) + room), "the axis is %g to %g, of values mostly from %g to %g" % (y0, y1, low, high))
        check(outside == "2 above, up to 1,234.5; 1 below, down to \u221277" or outside == "2 above, up to 1,234.5; 1 below, down to -77", "the mark says " + outside)
        for key in ("tok_s", "lr"):
            check(b.run(axis % key)[2] == "", "%s is clipped: %s" % (key, b.run(axis % key)))
        b.click_on("#clip")
        y0, y1, outside = b.run(axis % "grad_norm")
        check(y0 < -77 and y1 > 1234.5 and outside == "" and b.run("document.querySelector('#clip').getAttribute('aria-pressed')") == "false", "not clipped: %g to %g, %s" % (y0, y1, outside))
        b.press("c")
        b.run("report.view(1, 20)")
        check(b.run("report.state.clip") and b.run(axis % "grad_norm")[2] == "", "twenty values have outliers")
        quiet(b, page)


def by_hand(b, log):
    """Keys, wheel, drag, hover."""
    view, wide = lambda: b.run("[report.state.x0, report.state.x1]"), lambda v: v[1] - v[0]
    b.run("window.scrollTo(0, 0); document.querySelector('.chart canvas').focus()")
    for key, then in (("w", lambda a, z: wide(z) < wide(a)), ("d", lambda a, z: z[0] > a[0]), ("a", lambda a, z: z[0] < a[0]), ("s", lambda a, z: wide(z) > wide(a)),
                      ("w", lambda a, z: wide(z) < wide(a)), ("ArrowRight", lambda a, z: z[0] > a[0]), ("ArrowLeft", lambda a, z: z[0] < a[0])):
        before = view()
        b.press(key)
        check(then(before, view()), "key %s takes %s to %s" % (key, before, view()))
    left, top = b.run("(() => { const r = document.querySelector('.chart canvas').getBoundingClientRect(); return [r.x, r.y]; })()")
    before = view()
    b.mouse("mouseWheel", left + 200, top + 80, deltaX=0, deltaY=-120, modifiers=2)
    b.settle()
    check(wide(view()) < wide(before), "the wheel does not zoom")
    before = view()
    b.mouse("mousePressed", left + 300, top + 60, button="left", clickCount=1)
    b.mouse("mouseMoved", left + 250, top + 60, button="left", buttons=1)
    b.mouse("mouseReleased", left + 250, top + 60, button="left", clickCount=1)
    b.settle()
    check(view()[0] > before[0] and near(wide(view()), wide(before)), "a drag takes %s to %s" % (before, view()))
    b.mouse("mousePressed", left + 150, top + 60, button="left", clickCount=1, modifiers=8)
    b.mouse("mouseMoved", left + 250, top + 60, button="left", buttons=1, modifiers=8)
    b.mouse("mouseReleased", left + 250, top + 60, button="left", clickCount=1, modifiers=8)
    b.settle()
    check(wide(view()) < wide(before) / 2, "Shift+drag does not zoom to the range")
    b.press("0")
    steps = [line["step"] for line in log if "loss" in line]
    check(view()[0] <= steps[0] and view()[1] >= steps[-1], "0 does not show the whole run: %s" % view())
    # hover shows every run's value at that place
    b.mouse("mouseMoved", left + 200, top + 80)
    b.settle()
    x, tip = b.run("report.state.cursor"), b.run("document.querySelector('#tip').hidden ? null : document.querySelector('#tip').textContent")
    near_step = min(steps, key=lambda s: abs(s - x))
    loss = next(line["loss"] for line in log if line["step"] == near_step and "loss" in line)
    check(tip and "step %d" % near_step in tip and "%.6g" % loss in tip, "the tip at %s says %s, wanted step %d, loss %s" % (x, tip, near_step, loss))
    check(len(tip.split("\n")) == 1 + b.run("report.data.runs.length"), "the tip has not a line for each run: %s" % tip)
    # the keyboard's cursor goes from step to step and says what is there
    b.press("Escape")
    check(b.run("report.state.cursor") is None, "Escape leaves the cursor")
    for key, step in ((".", steps[0]), (".", steps[1]), (",", steps[0])):
        b.press(key)
        said = b.run("document.querySelector('#said').textContent")
        check(b.run("report.state.cursor") == step and "step %d" % step in said and "%.6g" % next(line["loss"] for line in log if line["step"] == step and "loss" in line) in said, "%s says %s" % (key, said))
    for axis in ("position", "time", "step"):
        b.press("x")
        check(b.run("report.state.axis") == axis and b.run("document.querySelector('#axis').value") == axis, "X goes to " + b.run("report.state.axis"))
    b.press("l")
    check(b.run("document.querySelector('#log').getAttribute('aria-pressed')") == "true", "L does not choose the log scale")
    b.press("l")


# Names of what takes the keyboard, a live region, landmarks; the contrast of every text and of every curve to its ground.
def test_page():
    folder = scratch("report")
    a, c, page = (os.path.join(folder, n) for n in ("a.jsonl", "b.jsonl", "runs.html"))
    logs = [made(a, 120, restarts=(50, 90), accuracy=1), made(c, 80, model="other", seed=2, every=7)]
    shardc("report", a, c, "-o", page)
    with Browser() as b:
        b.open(page)
        check(b.run("document.querySelector('#title').textContent") == "net, other" and "different models" in b.run("document.querySelector('#subtitle').textContent"), "the head does not name the models")
        shown = totals(b, logs) + memory(b, logs)
        compared = sum(cursors(b, logs, axis) for axis in ("step", "time", "position"))
        drawn(b)
        smoothing(b, logs[0])
        difference(b, logs)
        by_hand(b, logs[0])
        texts = accessible(b, "report.setCursor((report.state.x0 + report.state.x1) / 2)")
        b.ask("Emulation.setEmulatedMedia", media="print")
        check(b.run("getComputedStyle(document.querySelector('#bar')).display === 'none' && document.querySelector('#totals').getClientRects().length === 1"), "what is printed")
        b.ask("Emulation.setEmulatedMedia", media="")
        text, pages, curves = b.printed()
        figures = [t for key, _, _, t in b.run(TOTALS)] + b.run("[...document.querySelectorAll('#memory td[data-memory], .chart h2')].map(e => e.textContent)")
        check(not [t for t in figures if t not in text] and curves and pages < 8, "on paper (%d pages, curves %s) these are missing: %s" % (pages, curves, [t for t in figures if t not in text][:5]))
        check(b.run("document.documentElement.dataset.theme") == "dark", "after printing, the page is no longer dark")
        quiet(b, page)
    return "%d final values, %d values at the cursor, %d texts" % (shown, compared, texts)


def test_long_run():
    """A log of more steps than the page can hold: rows of several steps, each with their mean, lowest and highest value; the final values are those of
    all steps."""
    folder = scratch("report")
    path, page = os.path.join(folder, "long.jsonl"), os.path.join(folder, "long.html")
    log = made(path, 30000, every=1000)
    shardc("report", path, "-o", page)
    check(os.path.getsize(page) < 3e6, "%d bytes" % os.path.getsize(page))
    values = {k: [v for _, v in rows(log, k)] for k in ("loss", "grad_norm", "lr", "tokens", "tok_s", ("steps", "seconds"))}
    with Browser() as b:
        b.open(page)
        totals(b, [log])
        width, figures = b.run("[report.data.runs[0].steps.width, report.data.runs[0].steps.columns.map(c => [c.name, c.at, c.low, c.high])]")
        check(width == 4, "%s steps a row" % width)
        for name, at, low, high in figures:
            all = values[("steps", "seconds") if name == "seconds" else name]
            check(len(at) == math.ceil(len(all) / width), "%s has %d rows" % (name, len(at)))
            for i in range(len(at)):
                here = all[i * width:(i + 1) * width]
                check(abs(at[i] - sum(here) / len(here)) <= 1e-8 * abs(at[i]) and low[i] == min(here) and high[i] == max(here), "%s, row %d: %s" % (name, i, (at[i], low[i], high[i], here)))
        b.run("report.timing.frames.length = 0; new Promise(done => { let n = 20; const next = () => { if (!n--) return done(); report.view(report.state.x0 + 200, report.state.x1 - 200); requestAnimationFrame(next); }; next(); })")
        frames = sorted(b.run("report.timing.frames"))
        x = b.run("report.setCursor(1000.2); report.charts[0].value(report.data.runs[0], 1000.2)")
        check((x["first"], x["last"]) == (997, 1000), "the steps of a row: %s" % x)
        first = b.run("report.timing.first")
        quiet(b, page)
    check(first < 20000 and frames[-1] < 2000, "first paint %.0f ms, slowest frame %.0f ms" % (first, frames[-1]))
    return "first paint after %.0f ms, frames of a zoom %.1f ms; %d KB" % (first, frames[len(frames) // 2], os.path.getsize(page) >> 10)


def test_text_and_json():
    folder = scratch("report")
    a, c = (os.path.join(folder, n) for n in ("a.jsonl", "b.jsonl"))
    logs = [made(a, 60, restarts=(20,), accuracy=1), made(c, 30, model="other", seed=3)]
    found = json.loads(shardc("report", a, c, "--format", "json"))
    check(found["models"] == ["net", "other"] and len(found["runs"]) == 2, "models: %s" % found["models"])
    for run, log in zip(found["runs"], logs):
        want = finals(log)
        check((run["steps"], run["tokens"], run["restarts"]) == (want["steps"], want["position"], want["restarts"]) and near(run["seconds"], want["seconds"]), "%s" % {k: v for k, v in run.items() if k not in ("figures", "validation")})
        keys = {k for line in log if "model" not in line and "val_loss" not in line for k in line} - {"step"}
        check({f["name"] for f in run["figures"]} == keys, "figures are %s" % [f["name"] for f in run["figures"]])
        for table, figures in (("steps", run["figures"]), ("validations", run["validation"])):
            for f in figures:
                all = rows(log, (table, f["name"]))
                low, high = min(all, key=lambda x: x[1]), max(all, key=lambda x: x[1])
                got = [(f[k + "_step"], f[k]) for k in ("first", "last", "lowest", "highest")]
                check(f["values"] == len(all) and got == [all[0], all[-1], low, high], "%s: %s" % (f["name"], f))
                check("median" not in f or near(f["median"], statistics.median(v for _, v in all)), "median of %s: %s" % (f["name"], f))
        starts = [line for line in log if "model" in line]
        check([(s["usable_bytes"], [(c["class"], c["bytes"]) for c in s["peak"]]) for s in run["starts"]] == [(500000, [("parameters", 20000), ("optimizer state", 40000), ("activations", 60000)])] * len(starts), "memory: %s" % run["starts"])
        check([(s["step"], s["model"], s["predicted_step_s"], s["start"]) for s in run["starts"]] == [(s["step"], s["model"], s["predicted_step_s"], s["start"]) for s in starts], "starts: %s" % run["starts"])
    text = shardc("report", a)
    want = finals(logs[0])
    check(shardc("report", a, c).startswith("These runs are of different models: net, other. Their losses"), "other models are not told")
    for line in (r"a\.jsonl: net on cpu, 2 ranks$", r"^  steps +60, 1 to 60 of 60; 1 restart at step 20$",
                 r"^  loss +%.6g first, %.6g last, %.6g best at step \d+$" % (want["loss_first"], want["loss_last"], want["loss_best"]), r"^  val_loss +%.6g first" % want["val_loss_first"],
                 r"^  tok/s +%s median$" % format(round(want["tok_s"]), ","), r"^  time +[\d.]+ m?s in steps and validations$", r"^  step +%.1f ms median, 9\.5 ms predicted: %.2f times as long$" % (1e3 * want["actual_s"], want["ratio"]),
                 r"^  arena +123,456 B predicted, 123,456 B allocated, on each rank; 77 B of host memory; 500,000 B usable on the device$", r"^  peak +parameters 20,000 B, optimizer state 40,000 B, activations 60,000 B$", r"^  data +3,840 tokens, 0\.768 passes over the data$", r"^  metric +accuracy: "):
        check(re.search(line, text, re.M), "no line like %s in\n%s" % (line, text))
    check("different models" not in shardc("report", a) and shardc("report", a, "--format", "text") == shardc("report", a), "one run")
    out = os.path.join(folder, "report.json")
    shardc("report", a, "--format", "json", "-o", out)
    check(open(out).read() == shardc("report", a, "--format", "json"), "-o writes something else")
    # of an older program, whose log does not say how it began; of one that counts samples; of a GPU; not finite
    with open(c, "w") as f:
        f.write('{"step": 7, "device_bytes_predicted": 1000, "device_bytes_used": 900}\n{"step": 8, "loss": null, "samples": 4, "samples_s": 2.5, "seconds": 0.5, "scale": 1024, "skipped": 0, "x": null}\n'
                '{"step": 9, "loss": 3.5, "samples": 8, "samples_s": 3.5, "seconds": 0.25, "scale": 1024, "skipped": 0, "x": -1}\n{"step": 10, "loss": null, "samples": 12, "samples_s": 3, "seconds": 1, "x": null}\n'
                '{"step": 10, "device_bytes_predicted": 1000, "device_bytes_used": 950}\n')
    text = shardc("report", c)
    for line in (r"^  steps +3, 8 to 10; 0 restarts$", r"^  loss +3\.5 first, not finite last, 3\.5 best at step 9$", r"^  samples/s +3 median$", r"^  process +1,000 B predicted, 950 B used", r"^  data +12 samples$", r"^  step +500\.0 ms median$", r"metric +x: -1 first, nan last"):
        check(re.search(line, text, re.M), "no line like %s in\n%s" % (line, text))
    run = json.loads(shardc("report", c, "--format", "json"))["runs"][0]
    check(run["figures"][0]["last"] is None and run["samples"] == 12 and run["starts"] == [] and run["device_bytes_used"] == 950, "%s" % run)
    page = os.path.join(folder, "old.html")
    shardc("report", c, "-o", page)
    with Browser() as b:
        b.open(page)
        shown = {k: (v, t) for k, _, v, t in b.run(TOTALS)}
        check(shown["loss_last"][1] == "not finite" and shown["samples_s"][0] == 3 and shown["device_used"][0] == 950 and shown["metric x"][1] == "not finite" and shown["position"][1] == "12 samples", "%s" % shown)
        check(b.run("[...document.querySelectorAll('#memory td[data-memory]')].map(e => [e.dataset.memory, e.textContent])") == [["device_predicted", "1000 B"], ["device_used", "950 B"]], "the memory of a process on a GPU")
        check("predicted_s" not in shown and b.run("report.charts[0].curve(report.data.runs[0]).raw") == [None, 3.5, None], "what an old log holds")
        quiet(b, page)
    # on a terminal a page is not printed
    master, slave = pty.openpty()
    p = subprocess.run([SHARDC, "report", a, "--format", "html"], stdout=slave, stderr=subprocess.PIPE, text=True)
    os.close(slave)
    os.close(master)
    check(p.returncode == 2 and "--format html writes a page for a browser: write it to a file, -o run.html" in p.stderr, p.stderr)
    check(shardc("report", a, "--format", "html").startswith("<!DOCTYPE html>"), "to a pipe the page is written")


def test_several_runs_are_one_table():
    """Options that differ are its first columns, in the log's order; what is the same stands below, and neither is left out.
    A table that would be wider than 100 columns has a column a run instead of a row a run."""
    folder = scratch("report")
    given = [dict(lr=1e-3, batch=16, seed=1, data="a.bin", clip=1), dict(lr=2e-3, batch=32, seed=1, data="b.bin", clip=1), dict(lr=1e-3, batch=16, seed=3, data="a.bin", clip=1, weights="w")]
    given = [dict(g, **{"option precision": p, "option layers": "4"}) for g, p in zip(given, ("fp32", "bf16", "bf16"))]
    paths, logs = [os.path.join(folder, "run%d.jsonl" % k) for k in range(3)], []
    for k, path in enumerate(paths):
        log = made(path, 40 + 10 * k, restarts=(20,) if k == 1 else (), seed=k + 1, accuracy=1)
        for line in log:
            if "model" in line:
                line.update(given[k])
        logs.append(log)
        with open(path, "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in log)
    text = shardc("report", *paths)
    body, same = text.split("\n\n")[:2]
    check(same.startswith("the same in all runs: model=net target=cpu ranks=2 clip=1 layers=4"), "the same are: " + same)
    rows = [list(row) for row in zip(*(re.split(r"  +", line.strip()) for line in body.split("\n")))]
    check(rows[0] == ["run", "lr", "batch", "seed", "data", "precision", "weights", "steps", "loss", "best", "val_loss", "best", "tok/s", "step", "predicted", "accuracy"], "columns are %s" % rows[0])
    for k, (row, log) in enumerate(zip(rows[1:], logs)):
        want, g = finals(log), given[k]
        check(row[:7] == ["run%d.jsonl" % k, "%g" % g["lr"], str(g["batch"]), str(g["seed"]), g["data"], g["option precision"], g.get("weights", "-")], "run %d is %s" % (k, row))
        figures = ["%d%s" % (40 + 10 * k, ", 1 restart" if k == 1 else "")] + ["%.6g" % want[f] for f in ("loss_last", "loss_best", "val_loss_last", "val_loss_best")]
        check(row[7:12] == figures and row[12] == format(round(want["tok_s"]), ","), "run %d is %s, wanted %s" % (k, row, figures))
    check(len({len(line) for line in body.split("\n")}) == 1, "the columns do not stand below each other:\n" + body)
    narrow = os.path.join(folder, "narrow.jsonl")
    with open(narrow, "w") as f:
        f.writelines(json.dumps(dict(line, **({"data": "c.bin"} if "model" in line else {}))) + "\n" for line in logs[0])
    table = shardc("report", paths[0], narrow).split("\n\n")[0].split("\n")
    check(table[0].split()[:2] == ["run", "data"] and [line.split()[:2] for line in table[1:]] == [["run0.jsonl", "a.bin"], ["narrow.jsonl", "c.bin"]], "a narrow table:\n" + "\n".join(table))
    check(len({len(line) for line in table}) == 1 and len(table[0]) <= 100, "a narrow table:\n" + "\n".join(table))
    settings = [r["starts"][-1]["settings"] for r in json.loads(shardc("report", *paths, "--format", "json"))["runs"]]
    check([{x["name"]: x["value"] for x in s} for s in settings] == [{k.removeprefix("option "): v if isinstance(v, str) else "%g" % v for k, v in g.items()} for g in given], "JSON says %s" % settings)
    page = os.path.join(folder, "runs.html")
    shardc("report", *paths, "-o", page)
    with Browser() as b:
        b.open(page)
        names = b.run("[...document.querySelectorAll('#totals tbody tr')].map(e => e.querySelector('th').textContent)")
        check(names[:6] == ["lr", "batch", "seed", "data", "precision", "weights"] and names[-2:] == ["clip", "layers"], "rows are %s" % names)
        check(b.run("[...document.querySelectorAll('#totals tbody tr:first-child td')].map(e => e.textContent)") == ["0.001", "0.002", "0.001"], "learning rates")
        quiet(b, page)


HOSTILE = [HOSTILE_METRIC, "<img src=x onerror='window.ran = 1'>", "a\"b'c`d${window.ran = 1}", "line one\nline two\u2028three", "\u202emrof txet\u202c שלום", "<!--<script>", "</script ", "&lt;b&gt;",
           "@@d@@s", "n" * 10000, "tab\there\u0000\u001b[31m", "\U0001f600 \ud800", "__proto__", "constructor", "]]>\\u003c\\", ""]


def test_hostile_names():
    """Names of metrics, models and files: each is text in the page, in JSON as it is, and moves no terminal's cursor."""
    folder = scratch("report")
    with Browser() as b:
        for k, name in enumerate(HOSTILE):
            clean = name.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
            label = re.sub(r"[/\0]", "", name.replace("\ud800", "")).encode()[:200].decode(errors="ignore") or "empty"
            path, page = os.path.join(folder, label + ".%d.jsonl" % k), os.path.join(folder, "page%d.html" % k)
            with open(path, "w") as f:
                f.write(json.dumps({"step": 0, "model": name, "target": name, "start": name, "world": 1, "steps": 3, "epoch": 1}) + "\n")
                f.writelines(json.dumps({"step": step, "loss": 1 / step, name: step}) + "\n" for step in (1, 2, 3))
            shardc("report", path, "-o", page)
            run = json.loads(shardc("report", path, "--format", "json"))["runs"][0]
            check(run["figures"][1]["name"] == clean and run["figures"][1]["last"] == 3 and run["starts"][0]["model"] == clean and run["name"] == path, "JSON: %s" % run["figures"][1]["name"][:60])
            text = shardc("report", path)
            check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) and all(len(line) < 500 for line in text.split("\n")), "text: %r" % text[:300])
            b.open(page)
            check(b.run("document.querySelector('#title').textContent") == (clean or os.path.basename(path)), "the model is shown as %s" % b.run("document.querySelector('#title').textContent")[:100])
            titles = b.run("[...document.querySelectorAll('.chart h2')].map(e => e.textContent)")
            check(titles == ["loss", clean], "charts are called %s" % [t[:60] for t in titles])
            check(b.run("document.querySelector('#legend .name').textContent") == os.path.basename(path), "the file is shown as " + b.run("document.querySelector('#legend .name').textContent")[:100])
            shown = {key: v for key, _, v, _ in b.run(TOTALS)}
            check(shown["metric " + clean] == 3, "the metric's last value is not shown: %s" % list(shown)[-3:])
            check(len([1 for v in b.run(CURSOR % 2.0) if v[1] == clean and v[4] == 2]) == 1, "the metric is not shown at the cursor")
            b.mouse("mouseMoved", 300, 250)
            b.settle()
            check(b.run("window.ran === undefined && document.images.length === 0 && document.scripts.length === 2"), "a name became markup: " + name[:60])
            check(b.run("document.documentElement.scrollWidth <= innerWidth"), "a long name makes the page wider than the window: " + name[:60])
            quiet(b, page)
    return "%d names" % len(HOSTILE)


def test_bad_logs():
    folder = scratch("report")
    good = '{"step": 1, "loss": 2.5}\n'
    path = os.path.join(folder, "log.jsonl")
    no_log = "this is no line of a log, which is one JSON object of names, numbers and texts. A log is what --log FILE of a program writes"
    cases = [("hello\n", 1, no_log), (good + "[1]\n" + good, 2, no_log), (good + '{"step": 2, "loss": 2.5\n' + good, 2, no_log), (good + '{"step": 2, "loss": {}}\n' + good, 2, no_log), (good + '{"step": 2 "loss": 1}\n' + good, 2, no_log),
             (good + '{"step": 2, "loss": 0x10}\n' + good, 2, no_log), (good + '{"step": 2, "loss": 1e999}\n' + good, 2, no_log), (good + '{"step": 2, "loss": +1}\n' + good, 2, no_log), (good + '{"step": 2, "loss": NaN}\n' + good, 2, no_log),
             (good + '{"step": 2, "lo\\xss": 1}\n' + good, 2, no_log), (good + '{"step": 2, "lo\\u12g4": 1}\n' + good, 2, no_log), (good + '{"step": 2, "loss": 1} x\n' + good, 2, no_log), (good + "\n" + good, 2, no_log), (good + '{"step": 2, 3: 1}\n' + good, 2, no_log),
             (good + '{"step": 2, "loss": "a\tb"}\n' + good, 2, no_log), (good + '{"step": 2, "loss": 1,}\n' + good, 2, no_log), (good + '{"step": 2,\0 "loss": 1}\n' + good, 2, "this line holds a NUL byte"),
             ('{"loss": 1}\n', 1, 'this line of a log does not say its "step", a whole number'), ('{"step": 1.5, "loss": 1}\n', 1, 'does not say its "step"'), ('{"step": -1, "loss": 1}\n', 1, 'does not say its "step"'), ('{"step": "1", "loss": 1}\n', 1, 'does not say its "step"'),
             ('{"step": 5, "loss": 1}\n' + good, 2, "step 1 follows step 5: two runs in one file? give each its own log"), (good + good, 2, "step 1 follows step 1"), ("\x7fELF\x02\x01\x01\0\n", 1, "this line holds a NUL byte. A log is what"), (open(os.path.join(ROOT, "models", "mlp.lua")).read(), 1, no_log)]
    for text, line, message in cases:
        with open(path, "w") as f:
            f.write(text)
        for how in ([], ["-o", os.path.join(folder, "p.html")], ["--format", "json"]):
            rc, out, err = command([SHARDC, "report", path, *how])
            check(rc == 1 and not out and err.startswith("%s:%d: " % (path, line)) and message in err and err.count("\n") == 1, "%r: exit %d: %s" % (text[:80], rc, err))
        check(not os.path.exists(os.path.join(folder, "p.html")), "a page of a bad log")
    for text, message in (("", r"log\.jsonl is empty: no step was logged\. Has the run begun\?"), (None, r"cannot read \S+: No such file or directory")):
        if text is None:
            os.unlink(path)
        else:
            open(path, "w").close()
        rc, out, err = command([SHARDC, "report", path])
        check(rc == 1 and re.search(message, err), "exit %d: %s" % (rc, err))
    # the last line of a program that was killed, or writes it now, is left out
    for cut in ('{"step": 2, "lo', "{", '{"step": 2, "loss": 2.5}'):
        with open(path, "w") as f:
            f.write(good + cut)
        rc, out, err = command([SHARDC, "report", path])
        whole = cut.endswith("}")
        check(rc == 0 and ("%s:2: note: the last line is cut short; it is left out" % path in err) == (not whole) and ("2, 1 to 2" if whole else "1, 1 to 1") in out, "%s: exit %d: %s%s" % (cut, rc, out, err))
    # only a beginning
    with open(path, "w") as f:
        f.write('{"step": 0, "model": "net"}\n')
    page = os.path.join(folder, "none.html")
    shardc("report", path, "-o", page)
    check("steps      0; 0 restarts" in shardc("report", path), shardc("report", path))
    with Browser() as b:
        b.open(page)
        check("No step has been logged yet." in b.run("document.querySelector('#charts').textContent"), "a page without steps")
        quiet(b, page)
    rc, _, err = command([SHARDC, "report", path, "-o", path])
    check(rc == 1 and "is both an input and an output" in err, "exit %d: %s" % (rc, err))
    rc, _, err = command([SHARDC, "report"])
    check(rc == 2 and "report wants an INPUT, LOG.jsonl..." in err, "exit %d: %s" % (rc, err))
    rc, _, err = command([SHARDC, "report", path, "--world", "2"])
    check(rc == 2, "exit %d: %s" % (rc, err))
    return "%d logs" % len(cases)


def damage(r, text):
    """One to three bytes changed, left out or put twice."""
    data = bytearray(text)
    for _ in range(r.randint(1, 3)):
        at = r.randrange(len(data))
        how = r.randrange(3)
        if how == 0:
            data[at] = r.choice(b'"{}:,\\u0e-+.nts\n\x00\xff 19')
        elif how == 1:
            del data[at:at + r.randint(1, 9)]
        else:
            data[at:at] = data[at:at + r.randint(1, 30)]
    return bytes(data)


def test_damaged_logs():
    """Whatever a byte became: what is accepted equals what a JSON library reads, what is not is refused with file and line."""
    folder, r, taken = scratch("report"), random.Random(5), 0
    path = os.path.join(folder, "log.jsonl")
    made(path, 6, every=3, **{"a\\u00e9 \"b\\n\u00e9": 1})
    text = open(path, "rb").read()
    for _ in range(300):
        with open(path, "wb") as f:
            f.write(damage(r, text))
        p = subprocess.run([SHARDC, "report", path, "--format", "json"], capture_output=True)
        check(p.returncode in (0, 1), "exit %d: %s" % (p.returncode, p.stderr[-500:]))
        if p.returncode:
            check(re.match(rb"\S+log\.jsonl:\d+: ", p.stderr) or b"is empty" in p.stderr, "%s" % p.stderr)
            continue
        taken += 1
        raw = open(path, "rb").read().decode(errors="replace").split("\n")
        lines = []
        for k, line in enumerate(raw):
            try:
                lines.append(json.loads(line))
            except ValueError:
                check(k == len(raw) - 1, "a line that is no JSON was accepted: %s" % line[:200])
        found = json.loads(p.stdout)["runs"][0]
        check(found["steps"] + found["validations"] + len(found["starts"]) == len(lines), "%d lines, %s" % (len(lines), found["steps"]))
        for f in found["figures"]:
            if f["name"] == "loss":
                values = [line["loss"] for line in lines if isinstance(line.get("loss"), (int, float)) and "val_loss" not in line and not isinstance(line.get("model"), str)]
                check(f["values"] == len(values) and (not values or f["first"] == values[0]), "%s, wanted %s" % (f, values))
    check(10 < taken < 250, "%d of 300 damaged logs were accepted" % taken)
    return "300 logs, %d readable" % taken


# ── the page of a program ────────────────────────────────────────────────────────────────────────────────────────────────────
def runs_in(page):
    text = open(page).read()
    check(text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n"), "half a page of %d bytes" % len(text))
    return json.loads(re.search(r'<script id="runs" type="application/json">(.*?)</script>', text, re.S)[1])


def test_ops_of_traced_runs():
    """--traced: the page's tables of ops, and the text, say what `inspect --actual` says; each program has a table."""
    folder, given = scratch("report"), []
    log, page = os.path.join(folder, "log.jsonl"), os.path.join(folder, "ops.html")
    for world in (1, 2):
        binary, trace = build("mlp.lua", world=world), os.path.join(folder, "trace%d.json" % world)
        must([binary, "--data", corpus(), "--steps", "4", "--quiet", "--log", log if world == 2 else os.path.join(folder, "other.jsonl"), "--trace", trace])
        given.append((binary, trace))
    args = [x for binary, trace in given for x in ("--traced", binary + "=" + trace)]
    text = shardc("report", log, *args)
    check(text == shardc("report", log) + "".join("\n" + shardc("inspect", binary, "--actual", trace) for binary, trace in given), "the text is not that of inspect --actual:\n" + text)
    shardc("report", log, *args, "-o", page)
    with Browser() as b:
        b.open(page)
        tables = b.run("[...document.querySelectorAll('#ops table')].map(t => [...t.querySelectorAll('tbody tr')].map(r => [r.querySelector('th').textContent, ...[...r.querySelectorAll('td')].map(d => [d.dataset.op, Number(d.dataset.value)])]))")
        check(len(tables) == 2 and not b.run("document.querySelector('#ops-section').hidden"), "%d tables" % len(tables))
        for (binary, trace), table in zip(given, tables):
            want = json.loads(shardc("inspect", binary, "--actual", trace, "--format", "json"))
            check([r[0] for r in table] == [r["name"] for r in want["by_op"]], "ops: %s" % table)
            for got, row in zip(table, want["by_op"]):
                is_ = dict(got[1:])
                check(near(is_["predicted_us"], row["predicted_us"]) and near(is_["actual_us"], row["actual_us"]) and near(is_["ratio"], row["actual_us"] / row["predicted_us"]) and is_["events"] == row["events"]
                      and abs(is_["error"] - row["error_us"] / want["error_us"]) < 1e-8, "%s, wanted %s" % (is_, row))
        check(b.run("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window")
        quiet(b, page)
    shardc("report", log, "-o", page)
    check(runs_in(page)["traces"] == [], "ops without --traced")


def test_program():
    """A run of two parts and a validation: the page that it leaves, in the browser; its metric's name would end the block of data."""
    folder = scratch("report")
    log, page, state = (os.path.join(folder, n) for n in ("run.jsonl", "run.html", "state"))
    args = [program(), "--data", corpus(), "--val-data", corpus("held", 20000, 2), "--eval-steps", "2", "--eval-every", "4", "--quiet", "--log", log, "--report", page, "--save", state]
    must([*args, "--steps", "10"])
    must([*args, "--steps", "25", "--resume", state])
    lines = lines_of(log)
    starts = [line for line in lines if "model" in line]
    predicted = json.loads(shardc("predict", args[0], "--format", "json"))["prediction"]
    check([(s["step"], s["steps"], s["world"]) for s in starts] == [(0, 10, 2), (10, 25, 2)], "starts: %s" % starts)
    check(all(abs(s["predicted_step_s"] * 1e6 - predicted["step_us"]) < 1e-2 and s["arena_bytes"] == predicted["arena_bytes"] for s in starts), "predicted: %s, log: %s" % (predicted["step_us"], starts))
    live = json.loads(shardc("inspect", args[0], "--format", "json"))["peak"]["live"]
    check(all({k[5:]: v for k, v in s.items() if k.startswith("peak ")} == live for s in starts), "alive at the peak: %s, log: %s" % (live, starts))
    check(all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", s["start"]) for s in starts), "when it began: %s" % starts)
    check(sorted(os.listdir(folder)) == ["net.lua", "run.html", "run.jsonl", "state"] or sorted(os.listdir(folder)) == ["run.html", "run.jsonl", "state"], "left: %s" % os.listdir(folder))
    with Browser() as b:
        b.open(page)
        check(b.run("report.data.going") is False and b.run("document.querySelector('#follow-label').hidden"), "the last page says that the run goes on")
        shown = totals(b, [lines]) + memory(b, [lines])
        compared = sum(cursors(b, [lines], axis) for axis in ("step", "time", "position"))
        check(HOSTILE_METRIC in b.run("[...document.querySelectorAll('.chart h2')].map(e => e.textContent)"), "the metric's name is not shown as it is")
        check(b.run("window.ran === undefined && document.scripts.length === 2"), "a name became markup")
        quiet(b, page)
    other = os.path.join(folder, "same.html")
    shardc("report", log, "-o", other)
    check(runs_in(page) == runs_in(other), "the program's page and `shardc report` differ")
    return "%d final values, %d values at the cursor" % (shown, compared)


def test_accumulated_steps_are_predicted():
    """The predicted step is that of as many microbatches as the run takes."""
    log = os.path.join(scratch("report"), "log.jsonl")
    binary = build("gpt2.lua", world=1, layers=1, dim=32, heads=2, accumulate=3)
    predicted = {p["name"]: p["step_us"] for p in json.loads(shardc("inspect", binary, "--format", "json"))["programs"]}
    for n in (2, 3, 5):
        must([binary, "--data", corpus(), "--steps", "1", "--accumulate", str(n), "--quiet", "--log", log])
        want = predicted["micro_first"] + predicted["micro_last"] + (n - 2) * predicted["micro"]
        check(abs(lines_of(log)[0]["predicted_step_s"] * 1e6 - want) < 1e-2, "%d microbatches: %s, wanted %s us" % (n, lines_of(log)[0], want))


def test_rewritten_while_it_runs():
    """Whoever reads the page at any time reads a whole one, whose steps are in the log; it grows while the run goes on, and the last one is written even
    where the run is killed."""
    folder = scratch("report")
    log, page = os.path.join(folder, "run.jsonl"), os.path.join(folder, "run.html")
    p = subprocess.Popen([program(), "--data", corpus(), "--steps", "100000000", "--quiet", "--log", log, "--report", page], start_new_session=True)
    pages, reads, until = {}, 0, time.monotonic() + HANG
    try:
        while len(pages) < 4:
            check(p.poll() is None and time.monotonic() < until, "after %d reads: pages of %s steps" % (reads, sorted(pages)))
            if os.path.exists(page):
                written, d = os.stat(page).st_mtime, runs_in(page)
                pages.setdefault(d["runs"][0]["steps"]["lines"], (written, d))
                reads += 1
            time.sleep(.01)
        seen = sorted(pages)
        steps = [line for line in open(log).read().split("\n")[:-1] if '"loss"' in line]
        for n in seen:
            d = pages[n][1]
            loss = next(c for c in d["runs"][0]["steps"]["columns"] if c["name"] == "loss")
            check(d["going"] and json.loads(steps[n - 1])["loss"] == loss["last"] and json.loads(steps[0])["loss"] == loss["first"], "a page of %d steps" % n)
        apart = (pages[seen[-1]][0] - pages[seen[0]][0]) / (len(seen) - 1)
        check(apart > 1, "pages follow each other within %.1f s" % apart)
        with Browser() as b:
            b.open(page)
            check(re.search(r"running: step [\d,]+ of 100,000,000 when this page was written", b.run("document.querySelector('#subtitle').textContent")), b.run("document.querySelector('#subtitle').textContent"))
            check(not b.run("document.querySelector('#follow-label').hidden"), "a page of a run that goes on does not offer to load it again")
            quiet(b, page)
            # asked to, it loads itself again, with the view as it was
            b.run("report.setAxis('time'); report.setSmooth(.5); document.querySelector('#follow').click()")
            before, until = b.run("report.data.runs[0].steps.lines"), time.monotonic() + HANG
            while b.run("window.report ? report.data.runs[0].steps.lines : %d" % before) == before:
                check(time.monotonic() < until, "the page does not load itself again")
                time.sleep(.2)
            check(b.run("[report.state.axis, report.state.smooth, document.querySelector('#follow').checked]") == ["time", .5, True], "the view is lost: %s" % b.run("[report.state.axis, report.state.smooth]"))
            check(not b.complaints, "%s" % b.complaints)
        p.send_signal(signal.SIGKILL)
        p.wait()
        until = time.monotonic() + HANG
        while (d := runs_in(page))["going"]:
            check(time.monotonic() < until, "no last page after a kill")
            time.sleep(.05)
        last = [line for line in open(log).read().split("\n")[:-1] if '"loss"' in line]
        check(abs(d["runs"][0]["steps"]["lines"] - len(last)) <= 1 and not os.path.exists(page + ".part"), "the last page has %d of %d steps" % (d["runs"][0]["steps"]["lines"], len(last)))
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
    return "%d reads of %d pages, %.1f s apart" % (reads, len(pages), apart)


# ── the lines of a program ───────────────────────────────────────────────────────────────────────────────────────────────────
LOUD = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(8, 8)
function model:forward(x)
  nn.log_metric("accuracy", nn.mean(x))
  nn.log_metric(("long"):rep(2500), nn.mean(x * 2))
  nn.log_metric("\u202ered", nn.mean(x * 3))
  nn.log_metric("nan", nn.mean(nn.log(x * 0 - 1)))
  nn.log_metric("日本語の名前がとても長い場合の例", nn.mean(x * 4))
  return self.out(x)
end
return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 2, 8 }) },
  loss = function(m, b) return nn.mean(m(b.x)) end,
  optimizer = optim.SGD { lr = 1e-3 },
}
"""


def columns_of(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def on_terminal(args, wide):
    """What a program prints on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, wide, 0, 0))
    records = os.path.join(scratch("terminal"), "records")
    with open(records, "wb") as f:
        f.write(struct.pack("f", .25) * 16 * 50)
    with open(records, "rb") as f:
        p = subprocess.Popen(args, stdin=f, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    text = b""
    try:
        while more := os.read(ours, 1 << 16):
            text += more
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(ours)
    check(p.wait() == 0, "exit %d: %s" % (p.returncode, text[-500:]))
    return text.decode()


def test_lines_of_a_terminal():
    """A line of a step shows the model's metrics as the log has them. A live line is no longer than the terminal is wide, whatever the metrics are called."""
    folder = scratch("report")
    path, log = os.path.join(folder, "loud.lua"), os.path.join(folder, "log.jsonl")
    with open(path, "w") as f:
        f.write(LOUD)
    args = [build(path, world=1), "--data", "-", "--steps", "50", "--log", log]
    live, seen = 0, set()
    for wide in (200, 110, 80, 60, 30, 10):
        text = on_terminal(args, wide)
        names = [k for k in lines_of(log)[1] if k not in ("step", "loss", "grad_norm", "lr", "samples", "samples_s", "seconds")]
        check(names == ["accuracy", "long" * 2500, "\u202ered", "nan", "日本語の名前がとても長い場合の例"], "the log's names: %s" % names)
        for part in text.split("\r\n")[:-1]:
            *taken_back, stays = part.split("\r\x1b[K")
            for line in taken_back:
                plain = re.sub("\x1b\\[(36|0)m", "", line)
                check(not re.search(r"[\x00-\x1f\x7f]", plain) and columns_of(plain) < wide, "%d columns of %d: %r" % (columns_of(plain), wide, line))
                live += bool(plain)
                seen |= {w for w in ("accuracy 0.25", "longlonglonglonglonglo… 0.5", "?red 0.75", "nan nan", "#####.....", "##########..........") if wide in (200, 80) and w in plain}
            if stays.startswith("step "):
                check(stays.endswith("  accuracy 0.25  longlonglonglonglonglo… 0.5  ?red 0.75  nan nan  日本語の名前がとても長… 1"), "a line that stays: %r" % stays)
    check(len(seen) == 6, "live lines show only %s" % seen)
    return "%d live lines" % live
