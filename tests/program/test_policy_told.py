"""A plan under a policy file is called by it, and what the file overrides is not said as if it held: text, JSON, pages, differences, programs and logs.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import json
import os
import re

from browser import Browser, quiet
from harness import ROOT, SHARDC, check, command, corpus, entry, must, scratch, shardc

SMALL = ["--world", "2", "--set", "layers=2", "--set", "dim=32", "--set", "heads=2", "--set", "vocab=256", "--set", "batch=2", "--set", "seq=16"]
# what an entry says: (changes, options of gpt2 that it overrides)
ENTRIES = {
    "recompute": ('{ match = "h.*", checkpoint = {} }', ["recompute"], ["recompute"]),
    "offload": ('{ match = "h.*", checkpoint = { recompute = false, offload = { "input" } } }', ["offload"], ["offload"]),
    "state": ('{ match = "h.*", fully_shard = { offload = { params = true, optimizer = true } } }', ["offload"], ["offload"]),
    "reshard": ('{ match = "h.0", fully_shard = { reshard_after_forward = false } }', ["reshard"], ["reshard"]),
    "prefetch": ('{ match = "h.*", fully_shard = { prefetch = { forward = 2 } } }', ["prefetch"], ["prefetch"]),
    "precision": ('{ match = "", fully_shard = { mp_policy = { param_dtype = "bf16" } } }, { match = "h.*", fully_shard = { mp_policy = { param_dtype = "bf16" } } }', ["precision"], ["precision"]),
    "nothing": ('{ match = "h.*", fully_shard = { reshard_after_forward = true } }', [], []),
    "all": ('{ match = "h.*", checkpoint = { offload = { "attention" } }, fully_shard = { prefetch = { backward = 3 } } }', ["recompute", "offload", "prefetch"], ["offload", "prefetch", "recompute"]),
}


def policies(folder):
    for name, (entry, changes, overrides) in ENTRIES.items():
        path = os.path.join(folder, name + ".lua")
        with open(path, "w") as f:
            f.write("return { %s }\n" % entry)
        yield name, path, changes, overrides


def test_reports():
    folder = scratch("policy_told")
    model, count = os.path.join(ROOT, "models", "gpt2.lua"), 0
    options = json.loads(shardc("inspect", model, *SMALL, "--format", "json"))["options"]
    check("policies" not in json.loads(shardc("inspect", model, *SMALL, "--format", "json")), "a plan without policy files has some")
    for name, path, changes, overrides in policies(folder):
        plan, args = os.path.join(folder, name + ".plan.json"), [model, *SMALL, "--policy", path]
        shardc("inspect", *args, "--format", "json", "-o", plan)
        with open(plan) as f:
            said = json.load(f)
        check(said["policies"] == [{"file": path, "changes": changes, "overrides": overrides}] and said["options"] == options, "%s: JSON says %s" % (name, said["policies"]))
        check(json.loads(shardc("predict", *args, "--format", "json"))["policies"] == said["policies"], "predict's JSON differs")
        struck = " ".join("%s=%s" % (o, options[o]) for o in overrides)
        line = "%s: %s%s" % (path, ", ".join(changes) or "nothing that the model's own policies do not say", "; in place of " + struck if overrides else "")
        for source in (args, [plan]):
            text = shardc("inspect", *source)
            check("\npolicy: %s\n" % line in text, "%s: inspect says %s" % (name, text.split("\n")[:4]))
            held = re.search("^options: (.*)$", text, re.M)[1].split()
            check(held == ["%s=%s" % o for o in options.items() if o[1] and o[0] not in overrides], "%s: options are %s" % (name, held))
            check(entry(shardc("predict", *source), "policy") == line, "%s: predict does not name it" % name)
        settings = {s["name"]: (s["a"], s["b"]) for s in json.loads(shardc("diff", model, *SMALL, "--vs", "--policy", path, "--format", "json"))["settings"]}
        want = {"policy": (None, path), **{o: (options[o], "as %s says" % path) for o in overrides}}
        check(settings == want, "%s: diff says %s" % (name, settings))
        count += 1
    # of several files each says its own; what --budget chose is told too
    both = json.loads(shardc("inspect", model, *SMALL, "--policy", os.path.join(folder, "recompute.lua"), "--policy", os.path.join(folder, "prefetch.lua"), "--format", "json"))["policies"]
    check([p["changes"] for p in both] == [["recompute"], ["prefetch"]], "two files: %s" % both)
    whole = json.loads(shardc("predict", model, *SMALL, "--format", "json"))["peak"]["bytes"]
    text = shardc("predict", model, *SMALL, "--budget", "%d" % (whole * .97))
    check(re.match("chosen for the budget: [a-z, ]+; in place of ", entry(text, "policy")), "a budget's choice is not told:\n" + text)
    # values of a sweep that the file overrides
    rows = [re.split(r"  +", line.strip())[:2] for line in shardc("predict", model, *SMALL, "--policy", os.path.join(folder, "recompute.lua"), "--sweep", "recompute=none,full", "--sweep", "dropout=0,0.5").splitlines() if re.match(r" *(none|full)\b", line)]
    check(rows == [[r, q] for r in ("none (overridden)", "full") for q in ("0", "0.5")], "a sweep's values are %s" % rows)
    return "%d policies" % count


def test_pages():
    folder = scratch("policy_told")
    model, page = os.path.join(ROOT, "models", "gpt2.lua"), os.path.join(folder, "p.html")
    found = {name: (path, overrides) for name, path, _, overrides in policies(folder)}
    path, overrides = found["all"]
    with Browser() as b:
        shardc("inspect", model, *SMALL, "--policy", path, "--format", "html", "-o", page)
        b.open(page)
        struck = b.run("[...document.querySelectorAll('#subtitle del')].map(e => e.textContent.split('=')[0])")
        check(struck == overrides and "policy " + path in b.run("document.querySelector('#subtitle').textContent"), "struck are %s" % struck)
        quiet(b, page)
        shardc("diff", model, *SMALL, "--vs", "--policy", path, "--format", "html", "-o", page)
        b.open(page)
        chips = b.run("Object.fromEntries([...document.querySelectorAll('#settings li')].map(e => [e.dataset.setting, e.textContent]))")
        check(set(chips) == {"policy", *overrides} and chips["policy"] == "policy (none) → " + path, "settings that differ: %s" % chips)
        shared = b.run("document.querySelector('#shared').textContent")
        check(not any(o + "=" in shared for o in overrides), "the same in both: " + shared)
        shardc("diff", model, *SMALL, "--policy", path, "--vs", "--set", "layers=1", "--format", "html", "-o", page)
        b.open(page)
        check(b.run("[...document.querySelectorAll('#shared del')].map(e => e.textContent.split('=')[0])") == overrides, "of one policy in both, what it overrides is not struck")
        quiet(b, page)


def test_program():
    """The lines of `build` and of a program's start, and its log, name the file; the log has the options that hold."""
    folder = scratch("policy_told")
    path = next(p for name, p, _, _ in policies(folder) if name == "all")
    program, log = os.path.join(folder, "gpt2"), os.path.join(folder, "log.jsonl")
    said = shardc("build", os.path.join(ROOT, "models", "gpt2.lua"), *SMALL, "--policy", path, "-o", program)
    check(", policy %s -> " % path in said, "build says " + said)
    out = must([program, "--data", corpus(), "--steps", "2", "--lr", "1e-3", "--seed", "7", "--log", log])
    check(re.search(r"^model    gpt2 \(\S+gpt2\.lua, policy %s\), " % re.escape(path), out, re.M), "the program says " + out[:200])
    with open(log) as f:
        start = json.loads(f.readline())
    check((start["lr"], start["seed"], start["batch"], start["data"], start["policy"], start["option precision"]) == (1e-3, 7, 4, corpus(), path, "fp32"), "the log begins with %s" % start)
    check(not {"option recompute", "option offload", "option prefetch", "option lr"} & set(start), "the log says options that do not hold: %s" % start)
    rc, out, _ = command([SHARDC, "report", log])
    check(rc == 0 and re.search(r"^  options +lr=0\.001 batch=4 seed=7 ", out, re.M), "report says " + out)
