"""The page of questions shows what its commands print.

Relies on: harness.py, pages.py, models/questions.md. Relied on by: run.py."""
import pages
from harness import long


@long
def test_page():
    return pages.holds("models/questions.md", 90)
