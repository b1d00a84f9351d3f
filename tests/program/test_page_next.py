"""What the page of a plan says to do next: each row of "What would lower the peak" holds an entry of a policy file; a plan under that entry has a peak that
is lower, and a step that is longer, by what the row says.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import json
import os
import re

from browser import Browser, accessible, quiet
from harness import ROOT, build, check, scratch, shardc

H200 = ["--set", "precision=bf16", "--set", "seq=8192", "--device", "h200"]
PLANS = {
    "8b": (["llama3.lua", "--set", "size=8b", "--world", "8", *H200], "recompute model.layers.*.mlp"),
    "8b-selective": (["llama3.lua", "--set", "size=8b", "--world", "8", "--set", "recompute=selective", *H200], "recompute model.layers.*"),
    "405b": (["llama3.lua", "--set", "size=405b", "--world", "512", "--set", "recompute=full", *H200], "offload input model.layers.*"),
    "moe": (["moe.lua", "--world", "4"], "recompute layers.*.mlp.experts"),
    "accumulate": (["transformer.lua", "--world", "2", "--set", "accumulate=4"], "recompute decoder.layers.*"),
}
ROWS = """[...document.querySelectorAll('#next tr[data-saving]')].map(r => ({ name: r.dataset.saving, bytes: Number(r.dataset.bytes), lower: Number(r.dataset.lower), us: Number(r.dataset.us),
  entry: r.nextElementSibling.querySelector('code').textContent, said: r.textContent }))"""


def rows_of(b):
    b.run("document.querySelectorAll('#next > .link').forEach(e => e.click())")
    return b.run(ROWS)


def predicted(model, args, *more):
    p = json.loads(shardc("predict", model, *args, *more, "--format", "json"))
    return sum(p["peak"]["live"].values()), p["prediction"]["step_us"]


def test_entries_do_what_they_say():
    """The text as it is copied is the file. Recompute is within 2 % in bytes and 10 % in time; offload keeps the copy that is under way, and is
    within 7 % in bytes."""
    folder, tried = scratch("page_next"), []
    for name, (args, wanted) in PLANS.items():
        model, page, policy = os.path.join(ROOT, "models", args[0]), os.path.join(folder, name + ".html"), os.path.join(folder, name + ".lua")
        shardc("inspect", model, *args[1:], "--format", "html", "-o", page)
        with Browser() as b:
            b.open(page)
            rows = rows_of(b)
            quiet(b, page)
        check(wanted in [r["name"] for r in rows], "%s: no row says %s: %s" % (name, wanted, [r["name"] for r in rows]))
        rates = [r["us"] / r["lower"] for r in rows]
        check(rates == sorted(rates), "%s: rows do not stand by bytes a millisecond: %s" % (name, rows))
        beats = lambda x, y: x["name"].split()[-1] == y["name"].split()[-1] and x["lower"] >= y["lower"] and x["us"] <= y["us"] and (x["lower"], x["us"]) != (y["lower"], y["us"])
        check(not [(x, y) for x in rows for y in rows if beats(x, y)], "%s: a row of the same modules is better in both: %s" % (name, rows))
        live, step = predicted(model, args[1:])
        for r in rows:
            with open(policy, "w") as f:
                f.write(r["entry"])
            then, longer = predicted(model, args[1:], "--policy", policy)
            recompute = r["name"].startswith("recompute")
            off = abs((live - then) / r["lower"] - 1)
            check(off < (.02 if recompute else .07), "%s, %s: the peak falls by %d B, the page says %d" % (name, r["name"], live - then, r["lower"]))
            late = abs(longer - step - r["us"])
            check(late < .1 * r["us"] + 1e-3 * step, "%s, %s: the step is %.0f us longer, the page says %.0f" % (name, r["name"], longer - step, r["us"]))
            tried.append(off)
    return "%d entries, peaks within %.1f %%" % (len(tried), 100 * max(tried))


def test_from_a_plan_alone():
    """A plan.json and a binary tell the same as their model; a program that does not train tells nothing."""
    folder, model = scratch("page_next"), os.path.join(ROOT, "models", "gpt2.lua")
    args = ["--world", "2", "--set", "layers=2", "--set", "dim=64", "--set", "heads=4", "--set", "vocab=256", "--set", "batch=8", "--set", "seq=64"]
    plan, pages = os.path.join(folder, "plan.json"), {}
    shardc("inspect", model, *args, "--format", "json", "-o", plan)
    binary = build(model, world=2, **{"layers": 2, "dim": 64, "heads": 4, "vocab": 256, "batch": 8, "seq": 64})
    with Browser() as b:
        for name, source in (("model", [model, *args]), ("plan", [plan]), ("binary", [binary])):
            page = os.path.join(folder, name + ".html")
            shardc("inspect", *source, "--format", "html", "-o", page)
            b.open(page)
            pages[name] = rows_of(b)
        check(pages["model"] and pages["model"] == pages["plan"] == pages["binary"], "savings are %s" % pages)
        b.run("shardc.show(shardc.state.plan.programs.findIndex(p => p.name === 'eval'))")
        check(b.run("document.querySelector('#next').children.length") == 0, "eval has savings")
        b.run("shardc.show(shardc.state.plan.shown)")
        b.click_on("#tab-memory-tab")
        b.run("Object.defineProperty(navigator, 'clipboard', { value: { writeText: text => { window.copied = text; return Promise.resolve(); } } })")
        b.run("document.querySelector('#next .link').click()")
        copied, selected = b.run("[window.copied, getSelection().toString()]")
        check(copied == pages["model"][0]["entry"] and re.fullmatch(r"return \{\n  \{ match = .*\}\n\}\n", copied), "Copy copies %r" % copied)
        check(selected.split() == copied.split(), "Copy selects " + selected)
        texts = accessible(b, "document.querySelector('#tab-memory-tab').click()")
        quiet(b, page)
    return "%d rows, %d texts" % (len(pages["model"]), texts)
