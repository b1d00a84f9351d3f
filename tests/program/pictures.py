"""Writes models/pictures/: what README.md and compiler/report/README.md show of the pages of plans, in light and dark, in 255 colours: a third of the bytes. With names of PNG
files it does only the latter, which is how the page of runs in runtime/README.md, a picture of two runs, got small.

  python3 tests/program/pictures.py

Relies on: harness.py, browser.py, Chromium. Relied on by: README.md and compiler/report/README.md, which show the pictures; run by hand when a page has changed."""
import collections
import os
import struct
import sys
import zlib

from browser import Browser
from harness import ROOT, scratch, shardc

LLAMA = [os.path.join("models", "llama3.lua"), "--set", "size=8b", "--set", "precision=bf16", "--set", "seq=8192", "--world", "8", "--device", "h200"]
# name: the command that writes the page, what is done in it
PICTURES = {
    "plan": (["inspect", *LLAMA], "toPeak()"),
    "diff": (["diff", *LLAMA, "--vs", "--set", "recompute=full", "--fail-if", "step>+30%"], "toPeak('b')"),
}


def pixels(data):
    """(width, height, rows of (r, g, b)) of a PNG of 8 bits a channel."""
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body, at = data[at + 8:at + 8 + size], at + 12 + size
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
    step, raw, rows = {2: 3, 6: 4}[colour], zlib.decompress(packed), []
    wide = width * step
    above = bytearray(wide)
    for y in range(height):
        how, row = raw[y * (wide + 1)], bytearray(raw[y * (wide + 1) + 1:(y + 1) * (wide + 1)])
        for i in range(wide if how else 0):
            a, b, c = row[i - step] if i >= step else 0, above[i], above[i - step] if i >= step else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[i] = (row[i] + (0, a, b, (a + b) // 2, paeth)[how]) & 255
        rows.append([tuple(row[i:i + 3]) for i in range(0, wide, step)])
        above = row
    return width, height, rows


def fewer_colours(path):
    """The most frequent colours that differ by enough, and for each other one the nearest of them."""
    with open(path, "rb") as f:
        width, height, rows = pixels(f.read())
    counts, palette, off = collections.Counter(p for row in rows for p in row), [], lambda a, b: sum((x - y) ** 2 for x, y in zip(a, b))
    for least in (1200, 500, 200, 80, 20):
        for colour, _ in counts.most_common():
            if len(palette) < 255 and all(off(colour, p) > least for p in palette):
                palette.append(colour)
    nearest = {c: min(range(len(palette)), key=lambda i: off(c, palette[i])) for c in counts}
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)) + chunk(b"PLTE", b"".join(map(bytes, palette)))
                + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(nearest[p] for p in row) for row in rows), 9)) + chunk(b"IEND", b""))


def main():
    for path in sys.argv[1:]:
        fewer_colours(path)
    if sys.argv[1:]:
        return
    os.chdir(ROOT)  # so that the page's Lua lines are those of the repository
    for name, (command, script) in PICTURES.items():
        page = os.path.join(scratch("pictures"), name + ".html")
        shardc(*command, "--format", "html", "-o", page)
        with Browser(1440, 940) as b:
            b.open(page)
            for theme in ("light", "dark"):
                if b.run("document.documentElement.dataset.theme") != theme:
                    b.click_on("#theme")
                b.run(script)
                b.mouse("mouseMoved", 5, 5)
                path = os.path.join("models", "pictures", "%s-%s.png" % (name, theme))
                b.picture(path)
                fewer_colours(path)


if __name__ == "__main__":
    main()
