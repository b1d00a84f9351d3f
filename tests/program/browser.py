"""A browser without a window: Chromium, spoken to over two pipes in its DevTools protocol. Opens files, runs scripts in them, presses keys,
moves the pointer, takes pictures; keeps what the page says on the console, every exception and every request.

Relies on: Chromium. Relied on by: test_page.py, test_diff_page.py, test_actual.py, test_report.py, test_accessibility.py."""
import base64
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import time
import zlib

from harness import HANG, Failure, check, scratch

CODES = {"ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27, "Tab": 9}


def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    check(found, "there is no chromium: `make setup` installs it")
    return found


def text_of_pdf(data):
    """(lines of text, pieces of lines and rectangles) in a PDF that Chromium wrote: of its pages and of forms on them, each glyph by its
    font's table. A canvas is one image, or what was drawn on it."""
    objects = {int(n): body for n, body in re.findall(rb"(?:^|\n)(\d+) 0 obj\n(.*?)\nendobj", data, re.S)}

    def stream(n):
        head, _, body = objects[n].partition(b"stream\n")
        body = body[:int(re.search(rb"/Length (\d+)", head)[1])]
        return (zlib.decompress(body) if b"FlateDecode" in head else body).decode("latin-1")

    def letters(font):
        table, out = stream(int(re.search(rb"/ToUnicode (\d+)", objects[font])[1])), {}
        char = lambda digits: bytes.fromhex(digits).decode("utf-16-be")
        for block in re.findall(r"beginbfchar(.*?)endbfchar", table, re.S):
            out.update({int(a, 16): char(b) for a, b in re.findall(r"<(\w+)> <(\w+)>", block)})
        for a, z, b in (r for block in re.findall(r"beginbfrange(.*?)endbfrange", table, re.S) for r in re.findall(r"<(\w+)> <(\w+)> <(\w+)>", block)):
            out.update({k: chr(ord(char(b)) + k - int(a, 16)) for k in range(int(a, 16), int(z, 16) + 1)})
        return out
    text, drawn = [], 0
    for number, body in sorted(objects.items()):
        head = body.partition(b"stream\n")[0]
        if not re.search(rb"/Type /Page\b|/Subtype /Form", head):
            continue
        fonts = {name: letters(int(n)) for name, n in re.findall(rb"/(F\d+) (\d+) 0 R", head)}
        contents = re.search(rb"/Contents (\d+)", head)
        operators = stream(int(contents[1]) if contents else number)
        drawn += len(re.findall(r" (?:l|re|c)\n", operators))
        for font, glyphs, end in re.findall(r"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)> Tj|(ET)", operators):
            if font:
                now = fonts[font.encode()]
            text.append("".join(now.get(int(glyphs[i:i + 4], 16), "?") for i in range(0, len(glyphs), 4)) + ("\n" if end else ""))
    return "".join(text).split("\n"), drawn


class Browser:
    """with Browser() as b: b.open(path)"""

    def __init__(self, width=1440, height=900):
        self.size = width, height

    def __enter__(self):
        to_child, ours = os.pipe()
        theirs, from_child = os.pipe()

        def wire():  # Chromium reads commands from 3 and writes answers to 4. os.dup2(3, 3) would leave 3 closed at exec, so the copies lie above
            a, b = (fcntl.fcntl(fd, fcntl.F_DUPFD, 5) for fd in (to_child, from_child))
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-extensions", "--user-data-dir=" + scratch("browser"), "--window-size=%d,%d" % self.size, "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_child)
        os.close(from_child)
        self.out, self.into, self.buffer, self.last, self.session = ours, theirs, b"", 0, None
        self.complaints, self.requests, self.loaded = [], [], False
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(domain + ".enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=self.size[0], height=self.size[1], deviceScaleFactor=1, mobile=False)
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.ask("Browser.close")
            self.process.wait(20)
        except (Failure, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)

    def message(self, until):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], max(0, until - time.monotonic()))
            check(ready, "the browser does not answer")
            got = os.read(self.into, 1 << 20)
            check(got, "the browser has ended")
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def ask(self, method, timeout=HANG, **params):
        self.last += 1
        me, until = self.last, time.monotonic() + timeout
        text = {"id": me, "method": method, "params": params}
        if self.session:
            text["sessionId"] = self.session
        data = json.dumps(text).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self.out, data):]
        except BrokenPipeError:
            raise Failure("the browser has ended, exit %s, before %s" % (self.process.poll(), method))
        while True:
            m = self.message(until)
            if m.get("id") == me:
                check("error" not in m, "%s: %s" % (method, m.get("error")))
                return m["result"]
            self.note(m)

    def note(self, m):
        p = m.get("params", {})
        if m.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"])
        elif m.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(a.get("value")) for a in p["args"]))
        elif m.get("method") == "Log.entryAdded":
            self.complaints.append(p["entry"]["text"])
        elif m.get("method") == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"][:200])
        elif m.get("method") == "Page.loadEventFired":
            self.loaded = True
        elif m.get("method") == "Page.javascriptDialogOpening":
            self.complaints.append("a dialog opened: " + p["message"])

    def open(self, path):
        """A file, or an address."""
        self.complaints, self.requests, self.loaded = [], [], False
        self.ask("Page.navigate", url=path if "://" in path else "file://" + path)
        until = time.monotonic() + HANG
        while not self.loaded:
            self.note(self.message(until))
        self.settle()

    def run(self, script):
        """The value of an expression; of a promise, what it becomes."""
        r = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        check("exceptionDetails" not in r, "%s\n%s" % (script, r.get("exceptionDetails", {}).get("exception", {}).get("description")))
        return r["result"].get("value")

    def settle(self):
        """Two frames later whatever was asked to be drawn is drawn."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def press(self, key, modifiers=0):
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers, windowsVirtualKeyCode=CODES.get(key, ord(key[0].upper())), **(text if kind == "keyDown" else {}))
        self.settle()

    def type(self, text):
        self.ask("Input.insertText", text=text)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def click_on(self, selector):
        at = self.run("(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()" % json.dumps(selector))
        self.click(*at)

    def search(self, text):
        """As if the text had been typed into the page's search box."""
        self.run("(e => { e.value = %s; e.dispatchEvent(new Event('input')); })(document.querySelector('#search'))" % json.dumps(text))

    def printed(self):
        """(lines of text, pages, whether the canvases are there) as on paper: they are images, or hundreds of lines and rectangles, which are not there
        where the canvases are hidden."""
        def pdf(visible):
            self.run("document.querySelectorAll('canvas').forEach(c => { c.style.visibility = '%s'; })" % visible)
            self.settle()
            data = base64.b64decode(self.ask("Page.printToPDF")["data"])
            return *text_of_pdf(data), len(re.findall(rb"/Subtype /Image", data)), len(re.findall(rb"/Type /Page\b", data))
        _, pieces, images, _ = pdf("hidden")
        text, more_pieces, more_images, pages = pdf("visible")
        return text, pages, more_images - images >= self.run("document.querySelectorAll('canvas').length") or more_pieces - pieces > 300

    def picture(self, path):
        self.settle()
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


# ── what tests of pages share ────────────────────────────────────────────────────────────────────────────────────────────────
def quiet(b, page):
    check(not b.complaints, "the page complains: %s" % b.complaints[:3])
    check(b.requests == ["file://" + page], "the page asks for more than itself: %s" % b.requests)


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


# Every control has a name, every text a contrast of 4.5 to its ground; the colours of canvases, by kind of page.
ACCESS = """(() => {
  const bad = [], name = e => e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels[0] && e.labels[0].textContent.trim());
  for (const e of document.querySelectorAll('button, select, input, canvas, [tabindex]')) if (!name(e)) bad.push('no name: ' + e.outerHTML.slice(0, 80));
  if (document.querySelector('#said').getAttribute('aria-live') !== 'polite') bad.push('no live region');
  if (!document.querySelector('main') || !document.querySelector('h1') || !document.documentElement.lang) bad.push('no landmarks');
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
  const light = c => c.map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; }).reduce((s, x, i) => s + x * [.2126, .7152, .0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  let texts = 0;
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length || e.closest('script, .only-read')) continue;
    let ground = null;
    for (let g = e; g && !ground; g = g.parentElement) ground = parse(getComputedStyle(g).backgroundColor);
    const c = contrast(parse(getComputedStyle(e).color), ground || [255, 255, 255]);
    texts++;
    if (c < 4.5) bad.push(c.toFixed(2) + ': ' + e.textContent.slice(0, 40));
  }
  const hex = c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16));
  if (window.shardc) {
    const p = shardc.painter;
    for (const fill of [...p.fills.flat(), ...(p.changes || []), ...(p.colour.same ? [p.colour.same] : [])]) if (contrast(hex(p.colour.ink), hex(fill)) < 4.5) bad.push('upon ' + fill);
    for (const c of ['text', 'dim', 'budget', 'arrow', 'cursor']) if (contrast(hex(p.colour[c]), hex(p.colour.ground)) < 4.5) bad.push(c);
  } else {
    for (const c of document.querySelectorAll('canvas')) if (c.tabIndex !== 0 || !/from .* to .*lowest|none/.test(c.getAttribute('aria-label'))) bad.push('a curve that cannot be read: ' + c.getAttribute('aria-label'));
    for (const t of document.querySelectorAll('th')) if (!t.scope) bad.push('a heading of a table without scope: ' + t.textContent);
    const { colour } = report.state;
    for (const c of colour.runs) if (contrast(hex(c), hex(colour.ground)) < 3) bad.push('a curve of ' + c);
    for (const c of ['text', 'dim', 'cursor']) if (contrast(hex(colour[c]), hex(colour.ground)) < 4.5) bad.push(c);
  }
  return { bad, texts };
})()"""


def accessible(b, show):
    """In both themes, with what `show` shows, and with the list of keys open; how many texts were looked at."""
    texts = 0
    for theme in ("light", "dark"):
        if b.run("document.documentElement.dataset.theme") != theme:
            b.click_on("#theme")
        b.run(show)
        b.settle()
        found = b.run(ACCESS)
        check(not found["bad"], "%s: %s" % (theme, found["bad"][:5]))
        texts += found["texts"]
    b.press("Escape")
    b.run("document.querySelector('canvas').focus()")
    b.press("?")
    check(b.run("document.querySelector('#help').open && document.activeElement.closest('#help') !== null"), "the keys are not shown")
    check(not b.run(ACCESS)["bad"], "the dialog: %s" % b.run(ACCESS)["bad"][:5])
    b.press("Escape")
    check(not b.run("document.querySelector('#help').open"), "Escape leaves the dialog open")
    return texts


# Names that would become markup, or script, on a page that does not write them as text.
HOSTILE = ["</script><script>window.ran = 1</script>", "<img src=x onerror='window.ran = 1'>", "a\"b'c`d${window.ran = 1}", "line one\nline two\u2028three", "\u202emrof txet\u202c שלום", "<!--<script>", "<!--<script ", "</script ", "</script/x ", "&lt;b&gt;",
           "@@d@@s", "n" * 10000, "n." * 5000 + "0", "\U0001f468\u200d\U0001f469\u0301" * 1000, "\u202e" + "\u05e9\u05dc\u05d5\u05dd " * 2000, "]]>\\u003c\\", "javascript:window.ran=1"]
