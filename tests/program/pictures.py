"""Writes models/pictures/: what README.md shows of the pages, in light and dark.

  python3 tests/program/pictures.py

Relies on: harness.py, browser.py, Chromium. Relied on by: README.md, which shows the pictures; run by hand when a page has changed."""
import os

from browser import Browser
from harness import ROOT, scratch, shardc

LLAMA = [os.path.join("models", "llama3.lua"), "--set", "size=8b", "--set", "precision=bf16", "--set", "seq=8192", "--world", "8", "--device", "h200"]
# name: the command that writes the page, what is done in it
PICTURES = {
    "plan": (["inspect", *LLAMA], "toPeak()"),
    "diff": (["diff", *LLAMA, "--vs", "--set", "recompute=full", "--fail-if", "step>+30%"], "toPeak('b')"),
}


def main():
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
                b.picture(os.path.join("models", "pictures", "%s-%s.png" % (name, theme)))


if __name__ == "__main__":
    main()
