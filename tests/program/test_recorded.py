"""The bounds of tests/recorded.json: what they let pass and what they tell.

Relies on: recorded.py, harness.py. Relied on by: run.py."""
import copy
import json

import recorded
from harness import check


def test_bounds():
    """What tests/recorded.json says is held to on both sides; the file itself is compared by generated.generated_is_current."""
    with open(recorded.FILE) as f:
        rows = json.load(f)
    check(len(rows) == len(recorded.CONFIGURATIONS) and not recorded.differences(rows, rows), "the file has %d rows" % len(rows))
    for figure, whole, share in recorded.BOUNDS:
        for sign in (1, -1):
            for part, want in ((0.9, 0), (1.1, 1)):
                now = copy.deepcopy(rows)
                now[3][figure] += sign * part * share * rows[3][whole]
                said = recorded.differences(rows, now)
                check(len(said) == want and all(recorded.WORDS[figure] in x for x in said), "%s by %g bounds: %s" % (figure, sign * part, said))
    check(len(recorded.differences(rows, rows[1:])) == len(recorded.differences(rows[1:], rows)) == 1, "a row that is missing is not told")
