"""`predict --sweep`: every row is what a single predict says, in every format; bad points and bad input end in messages.

Relies on: harness.py, Python's csv and XML readers. Relied on by: run.py."""
import csv
import io
import itertools
import json
import math
import os
import pty
import re
import subprocess
import xml.etree.ElementTree

from harness import HANG, ROOT, SHARDC, check, command, entry, must, scratch, settings, shardc

MODELS = os.path.join(ROOT, "models")
GPT2 = os.path.join(MODELS, "gpt2.lua")
SMALL = settings({"layers": 2, "dim": 64, "heads": 4, "vocab": 256, "seq": 64})
REALS = ("step_us", "exposed_us", "time_off", "tokens_per_second", "samples_per_second", "mfu_full_attention", "mfu_causal_attention")


def predicted(*args):
    """What a single predict says; it exits 1 where the plan does not fit."""
    rc, out, err = command([SHARDC, "predict", *args, "--format", "json"])
    check(rc in (0, 1) and out, "predict %s: exit %d, %s" % (" ".join(args), rc, err))
    return json.loads(out)["prediction"]


def swept(*args, form="json"):
    out = shardc("predict", *args, "--format", form)
    if form == "json":
        return json.loads(out)["points"]
    return list(csv.DictReader(io.StringIO(out, newline=""))) if form == "csv" else out


def test_rows_are_single_predictions():
    """JSON and CSV, over the world, an option of numbers and one of words: order and figures."""
    base = [GPT2, *SMALL, "--device", "h200"]
    sweep = ["--sweep", "world=1,8..32x2", "--sweep", "recompute=none,full", "--sweep", "batch=3,1"]
    points = list(itertools.product(("1", "8", "16", "32"), ("none", "full"), ("3", "1")))
    rows, table = swept(*base, *sweep), swept(*base, *sweep, form="csv")
    check(len(rows) == len(table) == len(points), "%d and %d rows of %d points" % (len(rows), len(table), len(points)))
    for (world, recompute, batch), row, line in zip(points, rows, table):
        check(row["set"] == {"world": int(world), "recompute": recompute, "batch": int(batch)}, "order: %s" % row["set"])
        check((line["world"], line["recompute"], line["batch"]) == (world, recompute, batch), "order of CSV: %s" % line)
        one = predicted(*base, "--world", world, "--set", "recompute=" + recompute, "--set", "batch=" + batch)
        for key in ("fits", "arena_bytes", "host_bytes", *REALS):
            check(math.isclose(row[key], one[key], rel_tol=1e-14), "%s %s: %s in the sweep, %s alone" % (row["set"], key, row[key], one[key]))
        check(line["arena_bytes"] == str(one["arena_bytes"]) and line["fits"] == str(one["fits"]).lower(), "CSV: %s" % line)
        check(all(float(line[key]) == one[key] for key in REALS), "CSV: %s" % line)
        check(math.isclose(row["library_bytes"], sum(x["bytes"] for x in one["library"])), "library of %s" % row["set"])
    check(len({(r["arena_bytes"], r["step_us"]) for r in rows}) > 8, "the points hardly differ")


def test_devices_delays_and_nodes():
    base = [GPT2, *SMALL, "--world", "8", "--delay-collectives", "3"]
    for row in swept(*base, "--sweep", "device=h200,a100", "--sweep", "nodes=1,2"):
        one = predicted(*base, "--device", row["set"]["device"], "--nodes", str(row["set"]["nodes"]))
        check(row["step_us"] == one["step_us"] and row["arena_bytes"] == one["arena_bytes"], "%s: %s" % (row, one))


def test_text_says_the_same():
    base = [GPT2, *SMALL, "--device", "h200", "--world", "2"]
    lines = swept(*base, "--sweep", "batch=1..3", form="text").splitlines()
    check(re.split(r"  +", lines[0].strip()) == ["batch", "fits", "arena", "step", "tok/s a GPU", "MFU full", "MFU causal", "exposed"], lines[0])
    check(len({len(line) for line in lines}) == 1, "columns do not stand below each other:\n" + "\n".join(lines))
    for batch, line in zip("123", lines[1:]):
        text = shardc("predict", *base, "--set", "batch=" + batch)
        step, tokens, exposed = re.match(r"(\S+ \S+) · (\S+) tok/s a GPU · exposed communication (\S+ %)$", entry(text, "step")).groups()
        cells = re.split(r"  +", line.strip())
        full, causal = re.match(r"(\S+) with full .* (\S+) with causal", entry(text, "MFU")).groups()
        check((cells[0], cells[1], *cells[3:]) == (batch, "YES", step, tokens, full, causal, exposed), "%s: %s" % (cells, text))


def test_budgets_are_planned():
    """Each point of a budget is planned, as predict --budget plans it; one that nothing fits says so in its row."""
    base = [GPT2, *SMALL, "--set", "batch=8", "--world", "2"]
    whole = predicted(*base)["arena_bytes"]
    tight, hopeless = int(whole * 0.7), 4096
    rows = swept(*base, "--sweep", "budget=%d,%d,%d" % (whole, tight, hopeless))
    check(rows[0]["arena_bytes"] <= whole and rows[1]["arena_bytes"] <= tight < whole, "budgets: %s" % rows)
    check(rows[1]["step_us"] >= rows[0]["step_us"] and "recompute" in rows[1]["policies"], "the tight one: %s" % rows[1])
    check("nothing fits in 4.0KiB of arena among the " in rows[2]["error"] and "arena_bytes" not in rows[2], "%s" % rows[2])
    for row, budget in zip(rows, (whole, tight)):
        one = predicted(*base, "--budget", str(budget))
        check(row["arena_bytes"] == one["arena_bytes"] and row["step_us"] == one["step_us"], "%d: %s" % (budget, row))


def test_a_point_that_does_not_compile_has_a_row():
    args = [GPT2, *SMALL, "--sweep", "dropout=0,0.1", "--sweep", "batch=1,0"]
    rows = swept(*args)
    bad = [(r["set"]["dropout"], r["set"]["batch"]) for r in rows if "error" in r]
    check(bad == [(0, 0), ("0.1", 0)], "refused: %s" % bad)
    alone = command([SHARDC, "predict", GPT2, *SMALL, "--set", "batch=0"])
    check(alone[0] == 1 and rows[1]["error"] == alone[2].strip(), "%s is not what predict says: %s" % (rows[1], alone[2]))
    text = swept(*args, form="text")
    check(rows[1]["error"] in " ".join(text.split()), text)
    line = next(r for r in swept(*args, form="csv") if r["batch"] == "0")
    check(line["error"] == rows[1]["error"] and line["arena_bytes"] == "" and None not in line, "CSV: %s" % line)
    rc, out, err = command([SHARDC, "predict", GPT2, *SMALL, "--sweep", "batch=0,-1", "--format", "json"])
    check(rc == 1 and all("error" in r for r in json.loads(out)["points"]), "no point compiles: exit %d, %s" % (rc, err))


def test_the_network_takes_over():
    """From 8 to 16,384 GPUs: a rank gets no faster, holds no more, and waits longer for the network."""
    base = [os.path.join(MODELS, "llama3.lua"), *settings({"size": "1b", "precision": "bf16"}), "--device", "h200"]
    rows = swept(*base, "--sweep", "world=8..16384x2")
    check([r["set"]["world"] for r in rows] == [8 << i for i in range(12)], "worlds: %s" % [r["set"] for r in rows])
    for a, b in zip(rows, rows[1:]):
        check(b["tokens_per_second"] < a["tokens_per_second"] and b["arena_bytes"] < 1.01 * a["arena_bytes"], "%s, then %s" % (a, b))
    first, last = rows[0]["exposed_us"] / rows[0]["step_us"], rows[-1]["exposed_us"] / rows[-1]["step_us"]
    check(last > first + 0.1, "exposed: %.3f of 8 GPUs, %.3f of 16384" % (first, last))
    return "exposed %.0f %% to %.0f %%" % (100 * first, 100 * last)


SVG = "{http://www.w3.org/2000/svg}"


def picture(folder, *args):
    """The two panels: of each, the circles' titles and classes by color."""
    path = os.path.join(folder, "sweep.svg")
    rows = swept(*args, "--svg", path)
    root = xml.etree.ElementTree.parse(path).getroot()
    panels = []
    for g in root.findall(SVG + "g"):
        marks = [c for c in g.findall(SVG + "circle") if c.find(SVG + "title") is not None]
        panels.append([(c.get("stroke"), c.get("class"), c.find(SVG + "title").text, float(c.get("cx")), float(c.get("cy"))) for c in marks])
    return root, rows, panels


def test_svg_has_every_point():
    folder = scratch("sweep-svg")
    base = [os.path.join(MODELS, "llama3.lua"), *settings({"size": "8b", "precision": "bf16"}), "--device", "h100", "--world", "2"]
    root, rows, panels = picture(folder, *base, "--sweep", "batch=1..16x2,0", "--sweep", "recompute=none,full")
    check(len(panels) == 2, "%d panels" % len(panels))
    made = [r for r in rows if "error" not in r]
    check(len(made) == 10 and {r["fits"] for r in made} == {True, False}, "the points: %s" % [r.get("fits") for r in rows])
    for panel, key in zip(panels, ("tokens_per_second", "arena_bytes")):
        check(len(panel) == 10 and len({mark[0] for mark in panel}) == 2, "%d marks" % len(panel))
        at = {mark[2].split(":")[0]: mark for mark in panel}
        for r in made:
            mark = at["batch=%d recompute=%s" % (r["set"]["batch"], r["set"]["recompute"])]
            check((mark[1] == "full") == r["fits"], "%s is drawn as %s" % (r["set"], mark[1]))
        for a, b in itertools.combinations(made, 2):  # heights are in order of what is drawn, x in that of batch
            (_, _, _, ax, ay), (_, _, _, bx, by) = (at["batch=%d recompute=%s" % (r["set"]["batch"], r["set"]["recompute"])] for r in (a, b))
            check((a[key] - b[key]) * (ay - by) <= 0, "%s: %s and %s" % (key, a, b))
            check((a["set"]["batch"] - b["set"]["batch"]) * (ax - bx) >= 0, "batch: %s and %s" % (a["set"], b["set"]))
    texts = [t.text for t in root.iter(SVG + "text")]
    check("recompute=none" in texts and "recompute=full" in texts and "batch" in texts, "texts: %s" % texts)


HOSTILE = ['a<b>&"c"', "two\nlines", "semi;colon", "\x1b[31mred", "bad\udcffbyte", "it's=1", "1..", "ü"]


def test_hostile_values():
    """Options' values with every kind of quote, control characters and bytes that are no UTF-8: all formats stay readable."""
    folder = scratch("sweep-hostile")
    model = os.path.join(folder, "net.lua")
    with open(os.path.join(MODELS, "mlp.lua")) as mlp, open(model, "w") as f:
        f.write(mlp.read().replace("nn.options {", 'nn.options { note = "",'))
    args = [SHARDC, "predict", model]
    sweep = ["--sweep", b"note=" + ",".join(HOSTILE).encode(errors="surrogateescape"), "--sweep", "batch=1,2", "--svg", os.path.join(folder, "s.svg")]
    for form in ("json", "csv", "text"):
        p = subprocess.run([*args, *sweep, "--format", form], capture_output=True, timeout=HANG)
        check(p.returncode == 2 and b"1.. is no range" in p.stderr, "%d %s" % (p.returncode, p.stderr))
    sweep[1] = sweep[1].replace(b"1..", b"1.5")
    shown = [re.sub("[\x00-\x08\x0b-\x1f\udc80-\udcff]", "\ufffd", v).replace("1..", "1.5") for v in HOSTILE]
    outs = {}
    for form in ("json", "csv", "text"):
        p = subprocess.run([*args, *sweep, "--format", form], capture_output=True, timeout=HANG)
        check(p.returncode == 0, "%s: %d %s" % (form, p.returncode, p.stderr))
        outs[form] = p.stdout.decode()  # UTF-8, or it raises
    points = json.loads(outs["json"])["points"]
    check([p["set"]["note"] for p in points] == [s for s in shown for _ in "12"], "JSON: %s" % [p["set"] for p in points])
    rows = list(csv.DictReader(io.StringIO(outs["csv"], newline="")))
    check([r["note"] for r in rows] == [s for s in shown for _ in "12"], "CSV: %s" % [r["note"] for r in rows])
    check("\x1b" not in outs["text"] and "\\x1b[31mred" in outs["text"] and len(re.findall(r"^ {,14}\S.* [12]  ", outs["text"], re.M)) == 16, outs["text"])
    root = xml.etree.ElementTree.parse(os.path.join(folder, "s.svg")).getroot()
    names = [t.text for t in root.iter(SVG + "text")]
    check(all("note=" + s in names for s in shown), "legend: %s" % names)


def test_progress_on_a_terminal_alone():
    args = [SHARDC, "predict", GPT2, *SMALL, "--sweep", "batch=1..4"]
    check(command(args)[2] == "", "a progress line where standard error is no terminal")
    ours, theirs = pty.openpty()
    p = subprocess.run(args, stdout=subprocess.PIPE, stderr=theirs, timeout=HANG)
    os.close(theirs)
    text = ""
    try:
        while more := os.read(ours, 1 << 16).decode():
            text += more
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(ours)
    check(p.returncode == 0 and "points: 1 of 4" in text and text.endswith("\r\x1b[K"), repr(text))


BAD = [
    (["--sweep", "batch"], "--sweep batch: KEY=VALUE,VALUE,... is wanted, for example --sweep batch=1,2,4"),
    (["--sweep", "=1"], "--sweep =1: KEY=VALUE,VALUE,... is wanted"),
    (["--sweep", "batch="], "--sweep batch=: KEY=VALUE,VALUE,... is wanted"),
    (["--sweep", "batch=1,,2"], "a value between commas is empty; leave out the comma"),
    (["--sweep", "batch=8..4"], "8..4 is no range; write 8..64, 4..32+4 (in steps of 4) or 1024..16384x2 (doubled)"),
    (["--sweep", "batch=1..8x1"], "1..8x1 is no range"),
    (["--sweep", "batch=0..8x2"], "0..8x2 is no range"),
    (["--sweep", "batch=1..8+0"], "1..8+0 is no range"),
    (["--sweep", "batch=1..8*2"], "1..8*2 is no range"),
    (["--sweep", "batch=1..99999999999999999999"], "is no range"),
    (["--sweep", "batch=1..2x9223372036854775807"], "1..2x9223372036854775807 is no range; write 8..64, 4..32+4 (in steps of 4) or 1024..16384x2 (doubled), with whole numbers of at most 2^53"),
    (["--sweep", "batch=1..2+9223372036854775807"], "is no range"),
    (["--sweep", "batch=-9223372036854775808..1"], "is no range"),
    (["--sweep", "batch=1..9007199254740993"], "is no range"),
    (["--sweep", "batch=1..0x4"], "1..0x4 is no range"),
    (["--sweep", "batch=1..4x2.5"], "1..4x2.5 is no range"),
    (["--sweep", "batch=1.. 4"], "1.. 4 is no range"),
    (["--sweep", "batch=1..4x2x2"], "1..4x2x2 is no range"),
    (["--sweep", "world=0x10"], "world=0x10: a whole number from 1 to 1048576 is wanted"),
    (["--sweep", "world=4294967297"], "world=4294967297: a whole number from 1 to 1048576 is wanted"),
    (["--sweep", "budget=0x10GiB"], "budget=0x10GiB: an amount of memory is wanted"),
    (["--sweep", "batch=1..5000"], "these are more than 4096 points; give fewer values, or sweep several times"),
    (["--sweep", "batch=1..100", "--sweep", "seq=1..100"], "these are more than 4096 points"),
    (["--sweep", "batch=1", "--sweep", "batch=2"], "batch is swept already; give all its values at once, with commas"),
    (["--sweep", "batch=1", "--set", "batch=2"], "batch is given a single value too; leave that out"),
    (["--sweep", "world=1", "--world", "2"], "world is given a single value too"),
    (["--sweep", "world=0,1"], "world=0: a whole number from 1 to 1048576 is wanted"),
    (["--sweep", "nodes=two"], "nodes=two: a whole number from 1 to 1048576 is wanted"),
    (["--sweep", "budget=much"], "budget=much: an amount of memory is wanted, for example 60GiB, 80GB or 512MiB"),
    (["--sweep", "batch=1", "--at", "peak"], "--at shows one prediction, --sweep makes many: leave one of the two out"),
    (["--sweep", "batch=1", "--by", "unit"], "--by shows one prediction, --sweep makes many"),
    (["--sweep", "batch=1", "--dump-after", "fuse"], "--dump-after shows one prediction, --sweep makes many"),
    (["--sweep", "recompute=none", "--svg", "x.svg"], "--svg x.svg: a picture is drawn over a key whose values are numbers"),
    (["--svg", "x.svg"], "--svg x.svg: it is the picture of a sweep; give --sweep KEY=VALUES too"),
    (["--format", "csv"], "--format csv is for --sweep, --max and --best; give text or json"),
    (["--keep", "recompute"], "--keep recompute: it holds a choice of policies, and none are chosen; give --budget too"),
]


def test_bad_input():
    for args, said in BAD:
        rc, out, err = command([SHARDC, "predict", GPT2, *args])
        check(rc == 2 and said in err and not out, "%s: exit %d, %s%s" % (args, rc, out, err))
    rc, out, err = command([SHARDC, "predict", GPT2, "--sweep", "lyers=1,2"])
    check(rc == 1 and not out and "no point of this sweep compiles: " in err and "no option 'lyers'; did you mean 'layers'?" in err, err)
    rc, out, err = command([SHARDC, "predict", GPT2, "--sweep", "batch=0x2"])
    check(rc == 1 and "--set batch=0x2: batch must be a whole number, of at most 1e15" in err, err)
    rc, out, _ = command([SHARDC, "predict", GPT2, *SMALL, "--sweep", "batch=8..9007199254740992x1048576,12..20+9007199254740991", "--format", "csv"])
    rows = [line.split(",")[0] for line in out.splitlines()[1:]]
    check(rows == ["8", "8388608", "8796093022208", "12"], "a range that ends at 2^53: %s" % rows)
    folder = scratch("sweep-bad")
    plan = os.path.join(folder, "small.plan.json")
    shardc("inspect", GPT2, *SMALL, "--format", "json", "-o", plan)
    for option in ("--sweep", "batch=1"), ("--budget", "1GiB"):
        rc, out, err = command([SHARDC, "predict", plan, *option])
        check(rc == 2 and "this is compiled already: give the model's .lua file" in err, "%s: %d %s" % (option, rc, err))
    out = os.path.join(folder, "out.csv")
    must([SHARDC, "predict", GPT2, *SMALL, "--sweep", "batch=1,2", "--format", "csv", "-o", out])
    check(len(open(out).read().splitlines()) == 3, "-o of a sweep")


LLAMA = [os.path.join(MODELS, "llama3.lua"), *settings({"size": "1b", "layers": 4, "precision": "bf16"}), "--device", "rtx4090"]


def searched(*args):
    return json.loads(shardc("predict", *args, "--format", "json"))


def test_max_is_what_brute_force_finds():
    """Starting below and above the answer, and with a budget; its command predicts the same."""
    rows = swept(*LLAMA, "--sweep", "batch=1..24")
    most = max(r["set"]["batch"] for r in rows if r["fits"])
    check(1 < most < 24, "the largest batch is %d: no test" % most)
    for start in ([], ["--set", "batch=%d" % most], ["--set", "batch=1000"]):
        found = searched(*LLAMA, *start, "--max", "batch")
        check(found["value"] == most and found["option"] == "batch", "%s: found %s, %d is right" % (start, found["value"], most))
        check([p["set"]["batch"] for p in found["points"]] == [most - 1, most, most + 1], "neighbours: %s" % found["points"])
        check([p["fits"] for p in found["points"]] == [True, True, False], "neighbours: %s" % found["points"])
        for p in found["points"]:
            check(p["arena_bytes"] == rows[p["set"]["batch"] - 1]["arena_bytes"], "no full effort: %s" % p)
    words = found["command"].split()
    check(words[:2] == ["shardc", "predict"], found["command"])
    check(predicted(*words[2:])["arena_bytes"] == rows[most - 1]["arena_bytes"], found["command"])
    for budget in (rows[4]["arena_bytes"], rows[4]["arena_bytes"] - 1):
        want = max(r["set"]["batch"] for r in rows if r["arena_bytes"] <= budget)
        got = searched(*LLAMA, "--max", "batch", "--budget", str(budget))["value"]
        check(got == want, "budget %d: %d, %d is right" % (budget, got, want))
    text = shardc("predict", *LLAMA, "--max", "batch")
    check(text.startswith("largest batch found that fits rtx4090 (") and "as the model is: batch=%d\n" % most in text, text)
    check(re.search(r"\n  (each of %d to \d+ was tried: \d+|%d was tried: 1) too large; of larger ones, .*: none fits\n" % (most + 1, most + 1), text), text)
    return "batch %d" % most


ODD = """local nn, optim = require "nn", require "optim"
local o = nn.options { n = 4, kind = "plain" }
local rows = o.n
if o.kind == "fours" and o.n % 4 ~= 0 then error("a multiple of 4 is wanted") end
if o.kind == "powers" and (o.n & (o.n - 1)) ~= 0 then error("a power of two is wanted") end
if o.kind == "primes" then for d = 2, o.n - 1 do if o.n % d == 0 then error("a prime is wanted") end end end
if o.kind == "hole" and o.n >= 6 and o.n <= 12 then rows = 1000 end
if o.kind == "saw" then rows = 10 * (o.n % 10 + 1) end
local m = nn.module "M"
m.e, m.l = nn.Embedding(64, 16), nn.Linear(16, 64)
function m:forward(t) return self.l(self.e(t)) end
return nn.training { model = m, optimizer = optim.SGD { lr = 0.1 }, loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  batch = { tokens = nn.input("int32", { rows, 16 }, { from = "tokens" }), targets = nn.input("int32", { rows, 16 }, { from = "tokens", shift = 1 }) } }
"""


def test_max_skips_what_does_not_compile():
    """Values that the model refuses are neither too large nor the end; a value that is too large is not the end either. Beside every value up to
    64, below whose four-fold nothing else can fit; and what is said of the values above is so."""
    path = os.path.join(scratch("sweep-odd"), "odd.lua")
    with open(path, "w") as f:
        f.write(ODD)
    rows = {r["set"]["n"]: r for r in swept(path, "--sweep", "n=1..64")}
    for kind, start, budgets in (("fours", 4, (17, 39)), ("powers", 2, (17, 40)), ("powers", 64, (8,)), ("primes", 3, (24, 41)), ("hole", 4, (30,)), ("hole", 9, (40,)), ("plain", 50, (1, 33))):
        fits = [n for n in rows if not (kind == "fours" and n % 4 or kind == "powers" and n & (n - 1) or kind == "primes" and any(n % d == 0 for d in range(2, n)) or kind == "hole" and 6 <= n <= 12)]
        for rows_that_fit in budgets:
            args = [path, "--set", "kind=" + kind, "--set", "n=%d" % start, "--max", "n", "--budget", str(rows[rows_that_fit]["arena_bytes"])]
            found, most = searched(*args), max(n for n in fits if n <= rows_that_fit)
            check(found["value"] == most, "%s from %d, %d rows fit: %s is found, %d is right" % (kind, start, rows_that_fit, found["value"], most))
            check(found["each_tried_to"] > most and all(x > found["each_tried_to"] for x in found["larger_tried"]), "%s" % found)
            check(any(p["set"]["n"] == most and p["fits"] for p in found["points"]), "%s" % found["points"])
            check(("smaller_that_does_not_fit" in found) == (kind == "hole"), "%s: %s" % (kind, found))
    text = shardc("predict", path, "--set", "kind=fours", "--max", "n", "--budget", str(rows[39]["arena_bytes"]))
    check("largest n found that fits" in text and "each of 37 to 40 was tried: 1 too large, 3 do not compile; of larger ones, " in text, text)
    text = shardc("predict", path, "--set", "kind=hole", "--max", "n", "--budget", str(rows[30]["arena_bytes"]))
    check("\n  not every smaller one fits: 8 does not\n" in text, text)
    rc, out, err = command([SHARDC, "predict", path, "--set", "kind=saw", "--max", "n", "--budget", str(rows[51]["arena_bytes"])])
    check(rc == 1 and not out and " fits, the smaller 8 does not, and there is no end to such values; --sweep n=1,2,... shows each" in err, out + err)


def test_max_where_estimates_are_far_off():
    """The longest sequence of Llama-3 8B: its arena, placed in full, crosses the limit dozens of values away from the estimate's answer."""
    at = [os.path.join(MODELS, "llama3.lua"), "--set", "size=8b", "--set", "precision=bf16", "--world", "8", "--device", "h100"]
    most = searched(*at, "--max", "seq")["value"]
    fits = [predicted(*at, "--set", "seq=%d" % v)["fits"] for v in (most, most + 1)]
    check(most > 8192 and fits == [True, False], "%d: %s" % (most, fits))
    return "seq %d" % most


def test_best_has_most_tokens_of_those_planned():
    args = [GPT2, *SMALL, "--world", "2", "--budget", "12MiB"]
    found = searched(*args, "--best", "batch")
    made = [p for p in found["points"] if "error" not in p]
    best = max(made, key=lambda p: p["tokens_per_second"])
    check(found["value"] == best["set"]["batch"], "%d is not the best of %s" % (found["value"], made))
    tried = [p["set"]["batch"] for p in found["points"]]
    check(tried == sorted(set(tried)) and len(tried) > 3, "tried: %s" % tried)
    near = max(1, found["value"] // 32)
    check(found["value"] == 1 or any(0 < found["value"] - t <= near for t in tried), "no neighbour below: %s" % tried)
    check(any(0 < t - found["value"] <= near for t in tried), "no neighbour above: %s" % tried)
    check(all(p["arena_bytes"] <= 12 << 20 for p in made) and len({bool(p.get("error")) for p in found["points"]}) >= 1, "budget: %s" % made)
    words = found["command"].split()
    check(words[:2] == ["shardc", "plan"], found["command"])
    plan = json.loads(shardc("plan", *words[2:], "--format", "json"))
    check(plan["arena_bytes"] == best["arena_bytes"] and math.isclose(plan["step_us"], best["step_us"]), "%s: %s" % (best, plan["step_us"]))
    return "batch %d of %s" % (found["value"], tried)


def test_max_that_cannot_be_searched():
    folder = scratch("sweep-max")
    odd = os.path.join(folder, "odd.lua")
    with open(os.path.join(MODELS, "mlp.lua")) as mlp, open(odd, "w") as f:
        text = mlp.read().replace("local function MLP", 'if o.batch > 20 then error("at most 20 sequences") end\nlocal function MLP', 1)
        f.write(text.replace("o.batch, o.seq }", "(o.batch == 10 and 10000 or o.batch), o.seq }"))
    found = searched(odd, "--set", "batch=11", "--max", "batch", "--budget", "64MiB")
    check(found["value"] == 20 and "at most 20 sequences" in found["points"][-1]["error"], "a model that refuses more: %s" % found)
    rest = ["--budget", "1GiB"]
    for args, code, said in (
            (["--max", "batch", "--budget", "1KiB"], 1, "no batch was found that fits 1.0KiB of arena as the model is: batch=1 needs "),
            (["--max", "bacth", *rest], 2, "the model has no option bacth; did you mean batch?; its options are: batch dim"),
            (["--max", "lr", *rest], 2, "lr is 0.003; an option that is a whole number, 1 or more, is wanted"),
            (["--max", "precision", *rest], 2, "precision is fp32; an option that is a whole number"),
            (["--max", "batch"], 2, "the cpu target has no memory limit to search below; give --budget, for example --budget 4GiB"),
            (["--best", "batch"], 2, "the cpu target has no memory limit to search below"),
            (["--best", "batch", "--budget", "1KiB"], 1, "no batch can be planned within 1.0KiB of arena: batch=1: nothing fits in 1.0KiB"),
            (["--max", "batch", "--best", "batch"], 2, "--sweep, --max and --best are questions of their own: give one of them"),
            (["--max", "batch", "--at", "peak"], 2, "--at shows one prediction, --max makes many")):
        rc, out, err = command([SHARDC, "predict", odd, *args])
        check(rc == code and said in err and not out, "%s: exit %d, %s%s" % (args, rc, out, err))
    rc, out, err = command([SHARDC, "predict", LLAMA[0], *LLAMA[1:], "--set", "rope_original=8192", "--max", "rope_original"])
    check(rc == 1 and "name an option that it grows with" in err, err)
    rc, out, err = command([SHARDC, "predict", LLAMA[0], *LLAMA[1:], "--max", "heads"])
    check(rc == 2 and "heads has no value to start from; give one: --set heads=1" in err, err)


def test_advice_where_it_does_not_fit():
    """Two more lines, and the same in JSON: what shardc plan finds, and what --max finds; none where it fits."""
    args = [*LLAMA, "--set", "batch=20"]
    rc, text, err = command([SHARDC, "predict", *args])
    check(rc == 1 and not err, "exit %d, %s" % (rc, err))
    step, more, line = re.search(r"\n  fastest  found that fits \(step (\S+ \S+), (\S+) % on this one\):\n +(shardc plan .*)\n", text).groups()
    plan = json.loads(shardc(*line.split()[1:], "--format", "json"))
    us = {"s": 1e6, "ms": 1e3}[step.split()[1]]
    check(abs(float(step.split()[0]) * us - plan["step_us"]) <= 0.051 * us and plan["step_us"] > 0, "%s, but plan finds %s" % (step, plan["step_us"]))
    advice = json.loads(command([SHARDC, "predict", *args, "--format", "json"])[1])
    check("%+.1f" % (100 * (plan["step_us"] / advice["prediction"]["step_us"] - 1)) == more, more)
    check(advice["advice"]["plan"] == line and advice["advice"]["arena_bytes"] == plan["arena_bytes"], "%s" % advice["advice"])
    most = searched(*LLAMA, "--max", "batch")["value"]
    check(text.endswith("  batch    largest found as it is: %d\n" % most) and advice["advice"]["largest_batch"] == most, text)
    rc, text, _ = command([SHARDC, "predict", *LLAMA[:1], "--set", "size=8b", *LLAMA[-2:]])
    check(rc == 1 and text.endswith("as it is: none fits\n") and entry(text, "fastest").startswith(("no plan found fits: the smallest arena found has ", "found that fits")), text)
    for fitting in LLAMA, [*LLAMA, "--format", "json"]:
        check("largest" not in shardc("predict", *fitting), "advice where it fits")
