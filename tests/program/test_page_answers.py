"""Questions that people ask a plan, answered on its page: what is shown is what `shardc explain` says, or what follows from `inspect --format json`.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import json
import os
import random
import re

from browser import Browser, accessible, near, quiet
from harness import ROOT, check, scratch, shardc

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
    for line in shardc("explain", *source, event).splitlines()[1:]:
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
    """Arrows go from tab to tab; one that was chosen stays while the selection changes, until the first is chosen again; paper shows them all."""
    page, _ = written("gpt2", GPT2)
    with Browser() as b:
        b.open(page)
        names = b.run("[...document.querySelectorAll('[role=tab]')].map(e => e.textContent)")
        shown = lambda: b.run("[...document.querySelectorAll('.tab')].filter(e => !e.hidden).map(e => document.querySelector('[role=tab][aria-selected=true]').getAttribute('aria-controls') === e.id ? e.dataset.tab : '?')")
        check(names[:4] == ["Selection", "Memory", "Time", "Waits"] and shown() == ["Selection"], "tabs are %s, shown is %s" % (names, shown()))
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
