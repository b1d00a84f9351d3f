"""axe-core, the checker of web accessibility, finds nothing to complain of in any page that shardc writes: WCAG 2.0 and 2.1, levels A and AA, light and
dark, whatever is open or selected. test_page.py and test_report.py hold what it cannot see: contrasts on a canvas, keys, what is read aloud.

Relies on: harness.py, browser.py, build/axe (make setup), test_report.py (logs), test_actual.py (traces). Relied on by: run.py."""
import os

from browser import Browser
from harness import BUILD, ROOT, check, long, scratch, shardc
from test_actual import traced
from test_report import made

AXE = os.path.join(BUILD, "axe", "axe_core_python", "axe.min.js")
MODELS = os.path.join(ROOT, "models")
# Rules beyond these tags are advice, not WCAG's.
CHECK = """axe.run(document, { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }, preload: false, elementRef: false })
  .then(r => ({ passes: r.passes.length, bad: r.violations.map(v => v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 4).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 300)).join(' | ')) }))"""


class Checked:
    def __init__(self):
        self.views, self.least = 0, 1000

    def view(self, b, what):
        b.settle()
        if not b.run("window.axe !== undefined"):
            with open(AXE) as f:
                b.run(f.read() + ";1")
        found = b.run(CHECK)
        check(not found["bad"], "%s:\n%s" % (what, "\n".join(found["bad"])))
        self.views += 1
        self.least = min(self.least, found["passes"])

    def keys(self, b, theme):
        b.run("document.querySelector('#help-open').click()")
        self.view(b, theme + ", the keys")
        b.run("document.querySelector('#help-close').click()")

    def note(self):
        return "%d views, each by at least %d rules" % (self.views, self.least)


def themes(b):
    for theme in ("light", "dark"):
        if b.run("document.documentElement.dataset.theme") != theme:
            b.run("document.querySelector('#theme').click()")
        yield theme


def missing():
    return None if os.path.exists(AXE) else "skipped: no axe-core (make setup fetches it where there is a network)"


@long
def test_plan_page():
    if missing():
        return missing()
    page, checked = os.path.join(scratch("axe"), "plan.html"), Checked()
    for args in (["gpt2.lua", "--world", "4"], ["llama3.lua", "--set", "size=8b", "--set", "precision=bf16", "--world", "8", "--device", "h200"]):
        shardc("inspect", os.path.join(MODELS, args[0]), *args[1:], "--format", "html", "-o", page)
        with Browser() as b:
            b.open(page)
            for theme in themes(b):
                b.run("shardc.select(null)")
                checked.view(b, theme)
                b.press("p")
                checked.view(b, theme + ", an event selected")
                b.run("document.querySelectorAll('aside details').forEach(d => { d.open = true; })")
                checked.view(b, theme + ", the live set unfolded")
                for tab in b.run("[...document.querySelectorAll('[role=tab]')].map(e => e.id)"):
                    b.run("document.getElementById('%s').click()" % tab)
                    checked.view(b, theme + ", " + tab)
                b.click_on("#tab-selection-tab")
                b.run("shardc.select({ module: shardc.painter.moduleRows.find(r => r.members.length > 1).members[1].path }, true)")
                checked.view(b, theme + ", a layer selected")
                b.run("shardc.select({ range: [0, shardc.state.program.duration / 3] }, true)")
                checked.view(b, theme + ", a range selected")
                b.run("shardc.select({ storage: 3 }, true)")
                checked.view(b, theme + ", a storage selected")
                b.run("document.querySelector('#fold').click()")
                b.search("mlp")
                b.run("document.querySelector('#search').focus()")
                b.press("ArrowDown")
                checked.view(b, theme + ", found")
                b.search("nothing has this name")
                checked.view(b, theme + ", nothing found")
                b.search("")
                checked.keys(b, theme)
        with Browser(600, 900) as b:
            b.open(page)
            checked.view(b, "a narrow window")
    return checked.note()


@long
def test_page_of_two_plans():
    if missing():
        return missing()
    page, checked = os.path.join(scratch("axe"), "diff.html"), Checked()
    model = os.path.join(MODELS, "gpt2.lua")
    shardc("diff", model, "--world", "4", "--set", "layers=4", "--set", "dim=64", "--set", "heads=4", "--vs", "--set", "recompute=full", "--format", "html", "-o", page)
    with Browser() as b:
        b.open(page)
        for theme in themes(b):
            b.run("shardc.select(null)")
            checked.view(b, theme)
            b.run("shardc.select({ event: shardc.state.program.events[0] }, true)")
            checked.view(b, theme + ", an event selected")
            b.run("document.querySelectorAll('aside details').forEach(d => { d.open = true; })")
            checked.view(b, theme + ", the changes unfolded")
            b.run("shardc.select({ storage: shardc.state.program.storages[0] }, true)")
            checked.view(b, theme + ", a storage selected")
            b.run("document.querySelector('#kinds button').click()")
            checked.view(b, theme + ", one change alone")
            b.run("document.querySelector('#kinds button').click()")
            b.search("mlp")
            checked.view(b, theme + ", found")
            b.search("")
            checked.keys(b, theme)
    return checked.note()


def test_plan_page_with_a_run():
    if missing():
        return missing()
    binary, path = traced("mlp.lua", 2, {})
    page, checked = os.path.join(scratch("axe"), "plan.html"), Checked()
    shardc("inspect", binary, "--actual", path, "--format", "html", "-o", page)
    with Browser() as b:
        b.open(page)
        for theme in themes(b):
            b.press("p")
            checked.view(b, theme)
    return checked.note()


def test_run_page():
    if missing():
        return missing()
    folder, checked = scratch("axe"), Checked()
    a, c, page = (os.path.join(folder, n) for n in ("a.jsonl", "b.jsonl", "runs.html"))
    made(a, 60, restarts=(20, 40), accuracy=1)
    made(c, 30, model="other", seed=2, every=7)
    with open(c, "a") as f:
        f.write('{"step": 30, "device_bytes_predicted": 300000, "device_bytes_used": 290000}\n')
    only = os.path.join(folder, "only.jsonl")
    with open(only, "w") as f:
        f.write('{"step": 0, "model": "net"}\n')
    for logs, going in (((a, c), False), ((a,), True), ((only,), True)):
        shardc("report", *logs, "-o", page)
        if going:
            with open(page) as f:
                text = f.read()
            check(text.count('"going":false') == 1, "the page does not say that its runs have ended")
            with open(page, "w") as f:
                f.write(text.replace('"going":false', '"going":true'))
        with Browser() as b:
            b.open(page)
            for theme in themes(b):
                checked.view(b, theme)
                b.run("report.setCursor((report.state.x0 + report.state.x1) / 2)")
                checked.view(b, theme + ", a cursor")
                if len(logs) > 1:
                    b.run("document.querySelector('#legend button').click()")
                    checked.view(b, theme + ", a run hidden")
                    b.run("document.querySelector('#legend button').click()")
                checked.keys(b, theme)
        with Browser(500, 900) as b:
            b.open(page)
            checked.view(b, "a narrow window")
    return checked.note()


def test_figure_of_a_sweep():
    """The figure by itself, and as part of a page."""
    if missing():
        return missing()
    folder, checked = scratch("axe"), Checked()
    figure, page = os.path.join(folder, "sweep.svg"), os.path.join(folder, "page.html")
    shardc("predict", os.path.join(MODELS, "gpt2.lua"), "--sweep", "batch=1,2,4", "--sweep", "layers=1,2", "--svg", figure)
    with open(figure) as f, open(page, "w") as g:
        g.write("<!DOCTYPE html><html lang=en><title>A figure</title><main><h1>A figure</h1>%s</main></html>" % f.read())
    with Browser() as b:
        b.open(page)
        checked.view(b, "the figure in a page")
        name = b.run("(() => { const s = document.querySelector('svg'); return s.getAttribute('role') + ': ' + (s.getAttribute('aria-label') || (s.querySelector(':scope > title') || {}).textContent || ''); })()")
        check(name.startswith("img: ") and len(name) > 10, "the figure is called " + name)
    return checked.note()
