"""The page of two plans (`diff --format html`) in a browser: every total, sum and row of its list is what `--format json` and `--all` say; events are
found, clicked, stepped through and narrowed by pointer and keyboard; both sides' fields are shown; names run nothing.

Relies on: harness.py, browser.py, the models. Relied on by: run.py."""
import collections
import copy
import json
import os
import random
import re

from browser import ACCESS, HOSTILE, Browser, accessible, near, quiet
from harness import ROOT, SHARDC, check, command, long, scratch, settings, shardc

GPT2 = dict(layers=3, dim=32, heads=2, vocab=256, batch=2, seq=16)
LLAMA = dict(size="tiny", layers=3, dim=32, heads=4, kv_heads=2, ffn=64, vocab=256, batch=2, seq=16, precision="bf16")
BOUNDS = "peak>+1000%,step>+1000s,peak>1B"
SIDES = "ab"


def written(folder, model, world, options, other, device="h200"):
    """(page, plan A, plan B, the difference as JSON, as text). other: options of B alone."""
    both = [os.path.join(ROOT, "models", model), "--world", str(world), "--device", device, *settings(options)]
    page = os.path.join(folder, "diff.html")
    rc, _, err = command([SHARDC, "diff", *both, "--vs", *settings(other), "--fail-if", BOUNDS, "--format", "html", "-o", page])
    check(rc == 1 and "peak>1B is missed" in err and "+1000%" not in err, "exit %d: %s" % (rc, err))
    plans = [json.loads(shardc("inspect", *both, *more, "--format", "json")) for more in ([], settings(other))]
    d = json.loads(shardc("diff", *both, "--vs", *settings(other), "--format", "json"))
    return page, *plans, d, shardc("diff", *both, "--vs", *settings(other), "--all")


# ── figures and sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────
LESS_IS_BETTER = {"peak", "bound", "host", "library", "step", "exposed"}


def totals(b, d, plans):
    """Each figure with both sides, the difference, its sign and whether it is for the better."""
    shown = b.run("""Object.fromEntries([...document.querySelectorAll('#totals > div')].map(e => [e.dataset.total, { a: Number(e.querySelector('[data-side=a]').dataset.value),
      b: Number(e.querySelector('[data-side=b]').dataset.value), delta: Number(e.querySelector('.delta').dataset.delta), said: e.querySelector('.delta').textContent, kind: e.querySelector('.delta').className }]))""")
    work = [(p["tokens_per_step"] or p["samples_per_step"]) * p["microbatches_per_step"] for p in plans]
    said = b.run("(e => e ? [Number(e.dataset.a), Number(e.dataset.b)] : null)(document.querySelector('#work strong'))")
    check(said == (work if work[0] != work[1] else None), "a step's work is shown as %s, JSON says %s" % (said, work))
    same = " · ".join("%s=%s" % (k, v) for k, v in plans[0]["options"].items() if v != "" and plans[1]["options"].get(k) == v)
    check(b.run("document.querySelector('#shared').textContent") == ("the same in both: " + same if same else ""), "the same in both are " + b.run("document.querySelector('#shared').textContent"))
    rows = {r["name"]: r for r in d["figures"] if abs(r["a"] - r["b"]) >= 1e-6 or r["name"] in ("peak", "step", "exposed")}
    check(set(shown) == set(rows), "totals are %s, wanted %s" % (sorted(shown), sorted(rows)))
    for name, r in rows.items():
        s, change = shown[name], r["b"] - r["a"]
        check(near(s["a"], r["a"]) and near(s["b"], r["b"]) and abs(s["delta"] - change) <= 1e-9 * max(abs(r["a"]), abs(r["b"])), "%s is shown as %s, JSON says %s" % (name, s, r))
        shown_as_0 = {"step": .005, "exposed": .005, "mfu": .0005, "tokens": .5}.get(name, .5)  # whose difference would be shown as 0
        if abs(change) < shown_as_0 * .999 or s["said"] == "= the same" and abs(change) <= shown_as_0:
            check(s["said"] == "= the same", "%s: %s" % (name, s))
            continue
        worse = (change > 0) == (name in LESS_IS_BETTER)
        if work[0] != work[1] and name in ("step", "exposed"):  # of steps that do not do the same work
            check(s["said"].startswith("▲ +" if change > 0 else "▼ −") and not re.search("worse|better", s["said"] + s["kind"]), "%s: %s" % (name, s))
            continue
        check(s["said"].startswith("▲ +" if change > 0 else "▼ −") and s["said"].endswith(", worse" if worse else ", better"), "%s: %s" % (name, s))
        check(("worse" in s["kind"]) == worse or "dim" in s["kind"], "%s: %s" % (name, s))
    chips = b.run("Object.fromEntries([...document.querySelectorAll('#settings li')].map(e => [e.dataset.setting, e.textContent]))")
    word = lambda x: "(none)" if x is None else x or "(empty)"
    check(chips == {s["name"]: "%s %s → %s" % (s["name"], word(s["a"]), word(s["b"])) for s in d["settings"]}, "settings: %s" % chips)
    bounds = b.run("[...document.querySelectorAll('#bounds li')].map(e => [e.className, e.textContent])")
    check([k for k, _ in bounds] == ["kept", "kept", "missed"] and bounds[0][1] == "✓ --fail-if: peak>+1000% is kept" and bounds[2][1].startswith("✗ --fail-if: peak>1B is missed: peak is "), "bounds: %s" % bounds)
    return len(rows)


def tables(b, d):
    b.run("document.querySelectorAll('#sums .link').forEach(e => e.click())")
    shown = b.run("Object.fromEntries([...document.querySelectorAll('#sums table')].map(t => [t.dataset.table, [...t.querySelectorAll('tbody tr')].map(r => [r.dataset.sum, Number(r.dataset.a), Number(r.dataset.b), r.cells[0].textContent, r.cells[3].textContent])]))")
    count = 0
    for key in ("peak_classes", "peak_modules", "time_classes", "time_modules", "exposed_modules"):
        rows = shown.get(key, [])
        check(sorted(r["name"] for r in d[key]) == sorted(r[0] for r in rows), "%s has rows %s" % (key, [r[0] for r in rows]))
        wanted = {r["name"]: r for r in d[key]}
        for name, x, y, text, change in rows:
            w = wanted[name]
            check(name == text and near(x, w["a"]) and near(y, w["b"]), "%s %s is %s and %s, JSON says %s" % (key, name, x, y, w))
            nothing = .005 if "time" in key or "exposed" in key else .5  # is shown as 0
            check(change[0] == ("=" if abs(y - x) < nothing else "▲" if y > x else "▼"), "%s %s: %s" % (key, name, change))
            check(not re.search(r"[−+]0(\.0+)? |[−+]0\.0+ %", change), "%s %s: %s" % (key, name, change))
        moved = [abs(y - x) if abs(y - x) >= 1e-6 else -1 for _, x, y, _, _ in rows]
        check(moved == sorted(moved, reverse=True), "%s: the largest changes do not stand first: %s" % (key, moved))
        count += len(rows)
    return count


# ── the list of changes ──────────────────────────────────────────────────────────────────────────────────────────────────────
ROWS = """[...document.querySelectorAll('#changes [data-section="%s"] > details > summary .change, #changes [data-section="%s"] > .one .change')].map(e => [Number(e.dataset.count), e.dataset.change, e.dataset.what, Number(e.dataset.from), Number(e.dataset.to), e.lastElementChild.textContent])"""


def listed(b, title):
    return b.run(ROWS % (title, title))


def most_at_once(storages, plan, program):
    """The most bytes of a program's storages that are alive at once. storages: by name."""
    events = next((p["events"] for p in plan["programs"] if p["name"] == program), [])
    at = {e["id"]: i for i, e in enumerate(events)}
    lives = [(at[s["first"]] if "first" in s and "program" in s else -1, at[s["last"]] if "last" in s and "program" in s else len(events), s["size"]) for s in storages]
    return max((sum(size for a, z, size in lives if a <= t <= z) for t in {a for a, _, _ in lives}), default=0)


def changes(b, plans, d, text):
    """Of every program: the rows of the list are those of `--all`, in its order, and their sums are those of the events in JSON."""
    count, text = 0, re.sub(r"\n {21}(?=\S)", "  ", text)
    for i, p in enumerate([p for p in d["programs"] if p["name"]]):
        b.run("document.querySelector('#program').value = %d; document.querySelector('#program').dispatchEvent(new Event('change'))" % i)
        b.settle()
        for kind, title, source in (("events", "Events of " + p["name"], p), ("storages", "Storages of " + p["name"], p), ("storages", "Storages of all programs", d["programs"][0])):
            rows, said = listed(b, title), title[0].lower() + title[1:] + ": "
            lines = []
            if "\n" + said in text:
                for line in text.split("\n" + said)[1].split("\n")[1:]:
                    if not re.match(r" +\d+ ", line):
                        break
                    lines.append(line)
            check(len(rows) == len(lines), "%s: %d rows, --all has %d" % (title, len(rows), len(lines)))
            for (n, change, what, _, _, last), line in zip(rows, lines):
                line, start = (" ".join(x.split()) for x in (line, "%d %s %s" % (n, change, what)))
                check(line.startswith(start) and (change not in ("issued sooner", "issued later") or line.endswith(", " + last)), "%s: the list says %s, --all %s" % (title, (n, change, what), line))
            if kind == "storages":
                program = source["name"] or None
                named = [{s["name"]: s for s in plan["storages"] if s.get("program") == program} for plan in plans]
                of = lambda s: s["class"] + "  " + (".".join("*" if x.isdigit() else x for x in s["owner"].split(".")) or "(model)")
                for n, change, what, *held, _ in rows:
                    alike = [x["name"] for x in source[kind] if change in x["changes"] and of(named["b" in x][x["name"]]) == what]
                    if len(alike) == n:  # rows of another kind say more than class and owner
                        want = [most_at_once([s[i] for i in alike if i in s], plan, program) for s, plan in zip(named, plans)]
                        check(held == want, "%s: %s %s are %s, JSON says %s" % (title, change, what, held, want))
                    check(len(alike) == n or change.startswith("other"), "%s: %d are %s %s, JSON says %d" % (title, n, change, what, len(alike)))
                count += len(rows)
                continue
            field = "duration_us"
            for side, column in ((s, 3 + k) for k, s in enumerate(SIDES)):
                want, got = collections.Counter(), collections.Counter()
                for x in source[kind]:
                    for c in x["changes"]:
                        want[c] += x.get(side, {field: 0})[field]
                for r in rows:
                    got[r[1]] += r[column]
                check(all(abs(want[c] - got[c]) <= 1e-6 + 1e-9 * want[c] for c in want | got), "%s of %s: the list has %s, JSON %s" % (title, side, got, want))
            count += len(rows)
        counts = collections.Counter(c for e in p["events"] for c in e["changes"])
        buttons = b.run("Object.fromEntries([...document.querySelectorAll('#kinds button')].map(e => [e.dataset.kind, e.textContent.split(' ').pop().replaceAll(',', '')]))")
        check({k: int(n) for k, n in buttons.items()} == counts, "%s: buttons say %s" % (p["name"], buttons))
        if p.get("a") and p.get("b"):
            same = p["b"]["events"] - sum("added" not in e["changes"] and "removed" not in e["changes"] for e in p["events"]) - counts["added"]
            check("not changed " + format(same, ",") in b.run("document.querySelector('#kinds').textContent"), "%s: %d events have not changed" % (p["name"], same))
        heads = b.run("[...document.querySelectorAll('#program-figures [data-bytes]')].map(e => Number(e.dataset.bytes))")
        check(heads == [p[s]["peak"] for s in SIDES if s in p], "%s: peaks are %s" % (p["name"], heads))
    return count


# ── the timeline ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
SELECTED = """(() => Object.fromEntries([...document.querySelectorAll('#selection tr[data-fact]')].map(r => [r.dataset.fact, [r.className, ...[1, 2].map(i => [r.cells[i].textContent, Number((r.cells[i].querySelector('[data-value], [data-bytes]') || { dataset: {} }).dataset.value), Number((r.cells[i].querySelector('[data-bytes]') || { dataset: {} }).dataset.bytes)])]])))()"""


def go_to(b, d, name):
    index = [p["name"] for p in d["programs"] if p["name"]].index(name)
    b.run("shardc.show(%d)" % index)
    b.settle()


def head(b):
    return b.run("document.querySelector('#selection h2') && document.querySelector('#selection h2').textContent")


def clicks(b, plans, d):
    """Events of each kind: a click upon either side selects both; the panel shows what both plans say; those that differ are marked."""
    p = next(p for p in d["programs"] if (p["name"] or "").startswith("micro"))
    sides = [next(q for q in plan["programs"] if q["name"] == p["name"]) for plan in plans]
    events = [{e["id"]: e for e in q["events"]} for q in sides]
    go_to(b, d, p["name"])
    canvas = b.run("(() => { const r = document.querySelector('#canvas').getBoundingClientRect(); return [r.x, r.y]; })()")
    rng, done = random.Random(3), 0
    kinds = sorted({c for e in p["events"] for c in e["changes"]})
    chosen = [rng.choice([e["id"] for e in p["events"] if k in e["changes"]]) for k in kinds] + [e["id"] for e in rng.sample(sides[1]["events"], 6)]
    changed = {e["id"]: e for e in p["events"]}
    for i in chosen:
        for s, name in enumerate(SIDES):
            if i not in events[s]:
                continue
            b.run("shardc.select(null)")
            e = events[s][i]
            wide = max(e["duration_us"], 1e-2)
            b.run("shardc.view(%r, %r)" % (e["start_us"] - 2 * wide, e["start_us"] + 3 * wide))
            b.settle()
            at = b.run("(() => { const p = shardc.state.program.%s, [x0, x1, y, h] = shardc.painter.box('%s', p.eventNamed(%s)); document.querySelector('#scroll').scrollTop = y - 100; return [(x0 + x1) / 2, y + h / 2 + 3 - document.querySelector('#scroll').scrollTop]; })()" % (name, name, json.dumps(i)))
            b.click(canvas[0] + at[0], canvas[1] + at[1])
            check((head(b) or "").startswith(i + "  "), "a click on %s of %s selects %s" % (i, name, head(b)))
            facts = b.run(SELECTED)
            for k, side in enumerate(SIDES):
                x, shown = events[k].get(i), {f: v[1 + k] for f, v in facts.items()}
                if not x:
                    check(all(v[0] == "–" for v in shown.values()), "%s is not in %s, and shown with %s" % (i, side, shown))
                    continue
                check([shown[f][0] for f in ("op", "stream", "phase", "module")] == [x["op"], x["stream"], x["phase"], x["module"] or "(model)"], "%s of %s is shown with %s" % (i, side, shown))
                check(near(shown["takes"][1], x["duration_us"]) and abs(shown["starts"][1] - x["start_us"]) < 1e-6 * max(1, x["start_us"]), "%s of %s: times are %s" % (i, side, shown))
                waits = shown["waits for"][0] if "waits for" in shown else "–"
                check(sorted(waits.split(", ")) == sorted(x["waits"]) if x["waits"] else waits == "–", "%s of %s waits for %s, JSON says %s" % (i, side, waits, x["waits"]))
            said = b.run("document.querySelector('#selection p').textContent")
            wanted = changed.get(i, {"changes": []})["changes"]
            check(all(c in said for c in wanted) and (wanted or said.startswith("not changed")), "%s: the panel says %s, JSON %s" % (i, said, wanted))
            if all(i in side for side in events):
                for fact, key in (("op", "op"), ("stream", "stream"), ("module", "module"), ("phase", "phase")):
                    check((facts[fact][0] == "differs") == (events[0][i][key] != events[1][i][key]), "%s: %s is marked %s" % (i, fact, facts[fact]))
            check(b.run("document.querySelector('#said').textContent").startswith(i + ", "), "a screen reader does not hear of " + i)
            done += 1
    return done, p, events


PIXEL = "const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true }); [copy.canvas.width, copy.canvas.height] = [innerWidth, innerHeight]; copy.drawImage(shardc.painter.canvas, 0, 0); const at = (x, y) => '#' + [...copy.getImageData(Math.round(x), Math.round(y - shardc.painter.top), 1, 1).data].slice(0, 3).map(v => v.toString(16).padStart(2, '0')).join('');"


def drawn(b, p, events, plans):
    """Pixels: an event has the colour of what happened to it, and is low where nothing did; between the curves is the colour of who holds more."""
    tried = 0
    order = ["added", "removed", "other op", "other stream", "issued sooner", "issued later", "longer", "shorter", "other waits"]
    changed = {e["id"]: e["changes"] for e in p["events"]}
    for s, side in enumerate(SIDES):
        for i in sorted(events[s], key=lambda i: -events[s][i]["duration_us"])[:4] + [e for e in changed if e in events[s]][:6]:
            e, wide = events[s][i], max(events[s][i]["duration_us"], 1e-2)
            b.run("shardc.select(null); shardc.state.cursor = null; shardc.view(%r, %r)" % (e["start_us"] - wide, e["start_us"] + 2 * wide))
            b.run("document.querySelector('#scroll').scrollTop = shardc.painter.box('%s', shardc.state.program.%s.eventNamed(%s))[2] - 100" % (side, side, json.dumps(i)))
            b.settle()
            got = b.run("(() => { %s const p = shardc.painter, [x0, x1, y, h] = p.box('%s', shardc.state.program.%s.eventNamed(%s)); return [at(x1 - 4, y + 3), at(x1 - 4, y + h - 4), p.colour.same, p.colour.ground, p.changes]; })()" % (PIXEL, side, side, json.dumps(i)))
            kind = min((order.index(c) for c in changed.get(i, [])), default=-1)
            want = [got[2] if kind < 0 else got[4][kind]] * 2
            want[0] = want[0] if kind >= 0 else None  # above a low bar is ground, or the line of what waits
            check(got[1] == want[1] and (got[0] == want[0] or kind < 0 and got[0] != got[2]), "%s of %s (%s) is drawn as %s" % (i, side, changed.get(i), got))
            tried += 1
    # the curves, where the difference is largest; both peaks are the plans'
    b.click_on("#to-all")
    b.run("document.querySelector('#scroll').scrollTop = 1e6")
    b.settle()
    got = b.run("""(() => { %s const p = shardc.painter, g = shardc.state.program, { top } = p.memoryScale(), height = x => p.memoryAt + 170 * (1 - x / top);
      const held = s => { const out = []; p.moments(g[s], 0, (x, until, e) => { for (let k = x; k < until; k++) out[Math.floor(k)] = g[s].memory(0).total[e]; }); return out; };
      const a = held('a'), b = held('b'), away = k => Math.abs(a[k] - b[k]) || 0, flat = k => [-2, -1, 1, 2].every(i => a[k + i] === a[k] && b[k + i] === b[k]); // no line is there
      const best = a.map((_, k) => [flat(k) ? away(k) : 0, k]).filter(Boolean).sort((x, y) => y[0] - x[0])[0], x = best[1];
      return [best[0] / top * 170, b[x] > a[x], at(x, height((a[x] + b[x]) / 2)), p.colour.more, p.colour.less, ['a', 'b'].map(s => Math.max(...g[s].memory(0).total))]; })()""" % PIXEL)
    check(got[0] < 4 or got[2] == (got[3] if got[1] else got[4]), "between the curves: %s" % got)
    for s, plan in enumerate(plans):
        if plan["peak"]["program"] == p["name"]:
            check(got[5][s] == sum(plan["peak"]["live"].values()), "the peak of %s is %s" % (SIDES[s], got[5]))
    return tried


def by_hand(b, plans, d, p, events):
    """Keys, search, the buttons of kinds, the list."""
    go_to(b, d, p["name"])
    b.click_on("#to-all")
    b.run("document.querySelector('#canvas').focus()")
    ids = [e["id"] for e in p["events"]]
    seen = []
    for _ in range(3):
        b.press("j")
        seen.append(head(b).split("  ")[0])
    check(len(set(seen)) == 3 and set(seen) <= set(ids), "J goes to %s" % seen)
    time = lambda i: (events[1].get(i) or events[0][i])["start_us"]
    check([time(i) for i in seen] == sorted(time(i) for i in ids)[:3], "J goes to %s" % seen)
    b.press("k")
    check(head(b).startswith(seen[1] + "  "), "K goes to %s" % head(b))
    view = lambda: b.run("[shardc.state.t0, shardc.state.t1]")
    wide = lambda v: v[1] - v[0]
    b.press("f")
    t = view()
    for s in events:
        check(seen[1] not in s or t[0] <= s[seen[1]]["start_us"] and s[seen[1]]["start_us"] + s[seen[1]]["duration_us"] <= t[1], "F shows %s" % t)
    for key, then in (("d", lambda a, z: z[0] > a[0]), ("a", lambda a, z: z[0] < a[0]), ("s", lambda a, z: wide(z) > wide(a)), ("w", lambda a, z: wide(z) < wide(a))):
        before = view()
        b.press(key)
        check(then(before, view()), "key %s takes %s to %s" % (key, before, view()))
    b.press("0")
    b.press("Escape")
    check(head(b) is None, "Escape leaves %s selected" % head(b))
    # peaks of B and of A, the row above, the event after
    for side in (1, 0):
        b.press("p")
        peak = plans[side]["peak"]
        if peak["program"] == p["name"]:
            check(head(b).startswith(peak["event"] + "  "), "P goes to %s, the peak of %s is at %s" % (head(b), SIDES[side], peak["event"]))
    go_to(b, d, p["name"])
    side, rows = 1, sorted((e for e in events[1].values() if e["stream"] == "compute"), key=lambda e: e["start_us"])
    middle = rows[len(rows) // 2]
    b.run("shardc.select({ event: shardc.state.program.event('b', shardc.state.program.b.eventNamed(%s)) }, true, 'b')" % json.dumps(middle["id"]))
    b.run("document.querySelector('#canvas').focus()")
    b.press(".")
    check(head(b).startswith(rows[len(rows) // 2 + 1]["id"] + "  "), ". goes to %s" % head(b))
    b.press(",")
    check(head(b).startswith(middle["id"] + "  "), ", goes to %s" % head(b))
    b.press("ArrowUp")
    check(b.run("[shardc.state.side, shardc.state.program.stream(shardc.state.side, shardc.state.selection.event)]") == ["a", "compute"], "the arrow does not go from B to A")
    # search: rows of the list whose members hold every word; Enter selects the first, the arrows walk
    changed = p["events"][0]
    b.press("/")
    b.type(changed["id"].upper() + " " + changed["changes"][0])
    said = lambda e: " ".join([e["id"], *e["changes"], *(e[s][k] for s in SIDES if s in e for k in ("op", "module", "phase", "stream"))]).lower()
    found = [e for e in p["events"] if all(w in said(e) for w in (changed["id"], *changed["changes"][0].split()))]
    got = collections.Counter()
    for r in listed(b, "Events of " + p["name"]):
        got[r[1]] += r[0]
    check(found and got == collections.Counter(c for e in found for c in e["changes"]), "searching for %s finds %s" % (changed["id"], got))
    b.press("Enter")
    if b.run("document.activeElement.tagName") == "SUMMARY":
        b.press("ArrowDown")
        b.press("Enter")
    check(head(b) and b.run("document.querySelectorAll('#changes [aria-current]').length >= 1"), "Enter selects nothing")
    b.run("document.querySelector('#search').focus()")
    b.press("Escape")
    check(b.run("document.querySelector('#search').value === '' && document.activeElement.id === 'canvas'"), "Escape does not leave the search")
    unchanged = next(i for i in events[1] if i not in ids and i in events[0] and len(i) > 2)
    b.press("/")
    b.type(unchanged)
    check(unchanged in b.run("(document.querySelector('[data-section=unchanged]') || { textContent: '' }).textContent"), "what has not changed is not found: " + unchanged)
    b.search("")
    # a button shows one kind alone, in the list and in the timeline
    for kind in sorted({c for e in p["events"] for c in e["changes"]}):
        b.click_on("#kinds button[data-kind='%s']" % kind)
        check({r[1] for r in listed(b, "Events of " + p["name"])} == {kind} and b.run("document.querySelector(`#kinds button[aria-pressed=true]`).dataset.kind") == kind, "the button %s shows %s" % (kind, listed(b, "Events of " + p["name"])))
        b.click_on("#kinds button[data-kind='%s']" % kind)
    check(len({r[1] for r in listed(b, "Events of " + p["name"])}) == len({c for e in p["events"] for c in e["changes"]}), "the buttons leave the list narrowed")
    # a click upon a row opens it, one upon a member selects it, and a storage shows both sides
    b.run("shardc.select(null)")
    b.run("(() => { const e = document.querySelector('#changes details'); if (e) e.scrollIntoView({ block: 'nearest' }); })()")
    if b.run("document.querySelector('#changes details > summary') !== null"):
        b.click_on("#changes details > summary")
        b.settle()
        pairs = b.run("shardc.state.marked.length")
        check(b.run("document.querySelector('#changes details').open") and pairs > 1, "a click does not open a row, or marks %s events" % pairs)
        b.click_on("#changes details[open] .one button")
        check(head(b) is not None, "a click on a member selects nothing")
    storage = next((s for s in p["storages"] if "a" in s and "b" in s), p["storages"][0] if p["storages"] else None)
    if storage:
        index = {k: next((x["id"] for x in plan["storages"] if x["name"] == storage["name"] and x.get("program") == p["name"]), -1) for k, plan in zip(SIDES, plans)}
        b.run("shardc.select({ storage: shardc.state.program.storages.find(s => s.a === %(a)d && s.b === %(b)d) })" % index)
        facts = b.run(SELECTED)
        check(head(b) == storage["name"], "a storage is shown as " + str(head(b)))
        for k, side in enumerate(SIDES):
            if side in storage:
                check(facts["class"][1 + k][0] == storage[side]["class"] and facts["size"][1 + k][2] == storage[side]["size"], "%s of %s is shown with %s" % (storage["name"], side, facts))


def page_of(*args, **more):
    page, x, y, d, text = written(scratch("diff_page"), *args, **more)
    with Browser() as b:
        b.open(page)
        figures, sums = totals(b, d, (x, y)), tables(b, d)
        rows = changes(b, (x, y), d, text)
        clicked, p, events = clicks(b, (x, y), d)
        pixels = drawn(b, p, events, (x, y)) if p.get("a") and p.get("b") else 0
        by_hand(b, (x, y), d, p, events)
        texts = accessible(b, "shardc.select({ event: shardc.state.program.inTime[0] || shardc.state.program.event('b', 0) }, true)")
        check(b.run("document.documentElement.scrollHeight <= innerHeight && document.documentElement.scrollWidth <= innerWidth"), "the page is larger than the window")
        quiet(b, page)
    return "%d totals, %d sums, %d rows, %d events clicked, %d drawn, %d texts; %d KB" % (figures, sums, rows, clicked, pixels, texts, os.path.getsize(page) >> 10)


def test_prefetch():
    return page_of("gpt2.lua", 4, dict(GPT2, prefetch=1), dict(prefetch=2))


def test_recompute():
    return page_of("llama3.lua", 8, LLAMA, dict(recompute="full"))


def test_offload_of_state():
    return page_of("gpt2.lua", 2, dict(GPT2, precision="bf16"), dict(offload="state"))


def test_programs_of_one_side():
    """B accumulates: it has programs that A has not, and A one that B has not."""
    page, *plans, d, text = written(scratch("diff_page"), "gpt2.lua", 4, GPT2, dict(accumulate=2))
    with Browser() as b:
        b.open(page)
        totals(b, d, plans)
        rows = changes(b, plans, d, text)
        names = b.run("[...document.querySelectorAll('#program option')].map(e => e.textContent)")
        want = [p["name"] + ("" if "a" in p and "b" in p else " (only in %s)" % ("A" if "a" in p else "B")) for p in d["programs"] if p["name"]]
        check(names == want and any("only in B" in n for n in names), "programs are %s" % names)
        only = next(p for p in d["programs"] if p["name"] and "a" not in p)
        go_to(b, d, only["name"])
        b.run("document.querySelector('#canvas').focus()")
        b.press("j")
        check(head(b) and b.run("document.querySelector('#selection tr[data-fact=op]').cells[1].textContent") == "–", "an event of B alone is shown as %s" % head(b))
        for key in (".", "ArrowDown", "f", "p", "0"):
            b.press(key)
        b.mouse("mouseMoved", 500, 500)
        b.settle()
        quiet(b, page)
    return "%d rows" % rows


def test_equal_plans():
    model, page = os.path.join(ROOT, "models", "mlp.lua"), os.path.join(scratch("diff_page"), "same.html")
    shardc("diff", model, "--world", "2", "--vs", "--format", "html", "-o", page)
    with Browser() as b:
        b.open(page)
        check("A and B are the same" in b.run("document.querySelector('#subtitle').textContent"), "equal plans are not told")
        check(set(b.run("[...document.querySelectorAll('.delta')].map(e => e.textContent)")) == {"= the same"} and not b.run("document.querySelectorAll('#changes .one, #changes details, #kinds button').length"), "equal plans differ")
        for key in ("j", "p", "p", ".", "Escape"):
            b.press(key)
        check(not b.run(ACCESS)["bad"], "%s" % b.run(ACCESS)["bad"][:5])
        quiet(b, page)


def test_hostile_names():
    """Every name of both plans, replaced by each of these: shown as text."""
    folder = scratch("diff_page")
    clean = [json.loads(shardc("inspect", os.path.join(ROOT, "models", "mlp.lua"), "--world", "2", "--format", "json", *more)) for more in ([], ["--set", "batch=4"])]
    with Browser() as b:
        for k, text in enumerate(HOSTILE):
            name, paths = text.replace("\n", " "), []
            for side, plan in zip(SIDES, copy.deepcopy(clean)):
                plan["model"], plan["options"] = name, {name: text + side}
                p = next(p for p in plan["programs"] if p["name"] == "micro")
                for e in p["events"]:
                    e["op"], e["module"], e["source"] = name + side, name, name + ":7"
                for u in plan["units"]:
                    u["path"] = name
                for s in plan["storages"]:
                    s["name"], s["owner"] = name + str(s["id"]), name
                paths.append(os.path.join(folder, "%d%s.plan.json" % (k, side)))
                with open(paths[-1], "w") as f:
                    json.dump(plan, f)
            page = os.path.join(folder, "%d.html" % k)
            rc, _, err = command([SHARDC, "diff", *paths, "--format", "html", "-o", page])
            check(rc == 0, "exit %d: %s" % (rc, err[:400]))
            b.open(page)
            check(b.run("document.querySelector('h1').textContent") == name, "the model's name is shown as " + b.run("document.querySelector('h1').textContent")[:200])
            check(b.run("document.querySelector('#settings li strong').textContent") == "%sa → %sb" % (text, text), "an option is not shown as it is: " + name[:60])
            b.run("shardc.select({ event: shardc.state.program.events[0] }, true)")
            facts = b.run(SELECTED)
            check([facts["op"][i][0] for i in (1, 2)] == [name + "a", name + "b"] and facts["Lua line"][1][0] == name + ":7", "an event is shown with %s" % str(facts)[:300])
            check(any(r[2].startswith(name + "a  ") for r in listed(b, "Events of micro")), "the list has no row of " + name[:60])
            b.run("shardc.select({ storage: shardc.state.program.storage('b', shardc.state.program.b.storages[0].index) })")
            check(head(b) and head(b).startswith(name), "a storage is shown as " + str(head(b))[:200])
            b.run("document.querySelectorAll('#changes details').forEach(d => { d.open = true; }); document.querySelectorAll('#sums .link').forEach(e => e.click())")
            b.search("<")
            b.mouse("mouseMoved", 400, 300)
            b.settle()
            check(b.run("window.ran === undefined && document.images.length === 0 && document.scripts.length === 6 + 2 * (shardc.diff.a.programs.length + shardc.diff.b.programs.length)"), "a name became markup: " + name[:60])
            check(b.run("document.documentElement.scrollWidth <= innerWidth"), "a long name makes the page wider than the window: " + name[:60])
            quiet(b, page)
    return "%d names" % len(HOSTILE)


def test_refusals():
    model = os.path.join(ROOT, "models", "mlp.lua")
    rc, _, err = command([SHARDC, "diff", model, "--vs", "--format", "csv"])
    check(rc == 2 and "one of text, json, html is wanted" in err, "exit %d: %s" % (rc, err))
    rc, out, err = command([SHARDC, "diff", model, "--vs", "--format", "html"])
    check(rc == 0 and out.startswith("<!DOCTYPE html>") and out.rstrip().endswith("</html>"), "to a pipe the page is written: exit %d: %s" % (rc, err))
    return "2 commands"


@long
def test_size_and_speed():
    """Llama-3 8B on eight ranks, with and without recomputation; and 60,000 events a side. Limits are far above, so that a busy machine fails nothing."""
    page = os.path.join(scratch("diff_page"), "large.html")
    shardc("diff", os.path.join(ROOT, "models", "llama3.lua"), "--set", "size=8b", "--set", "precision=bf16", "--world", "8", "--device", "h200", "--vs", "--set", "recompute=full", "--format", "html", "-o", page)
    check(os.path.getsize(page) < 5e6, "%d bytes" % os.path.getsize(page))
    size = os.path.getsize(page) >> 10
    shardc("diff", os.path.join(ROOT, "models", "gpt2.lua"), "--world", "2", *settings(dict(layers=2300, dim=64, heads=2, seq=64)), "--vs", "--set", "prefetch=2", "--format", "html", "-o", page)
    with Browser() as b:
        b.open(page)
        first, count = b.run("shardc.timing.first"), b.run("shardc.state.program.b.n")
        frames = []
        for wide in (1, .1, .001):
            b.run("shardc.timing.frames.length = 0; shardc.view(0, shardc.state.program.duration * %g)" % wide)
            b.run("new Promise(done => { let n = 10; const next = () => { if (!n--) return done(); shardc.view(shardc.state.t0 + (shardc.state.t1 - shardc.state.t0) / 40, shardc.state.t1 + (shardc.state.t1 - shardc.state.t0) / 40); requestAnimationFrame(next); }; next(); })")
            frames += b.run("shardc.timing.frames")
        quiet(b, page)
    frames.sort()
    check(count > 50000 and first < 20000 and frames[-1] < 2000, "%d events: first paint %.0f ms, slowest frame %.0f ms" % (count, first, frames[-1]))
    return "%d KB for 8B; %d events a side: first paint after %.0f ms, frames of a pan %.1f ms, slowest %.1f ms" % (size, count, first, frames[len(frames) // 2], frames[-1])
