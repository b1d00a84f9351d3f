"""Fixed patterns of signs: sums of a tensor under them stand for its values in NAME.json.

Relies on: nothing. Relied on by: make.py, tests/program/test_golden.py."""
PATTERNS = 3


def signed_sum(values, pattern):
    """Sum of x[i] × ±1; the sign is a bit of a 32-bit hash of i and the pattern (lowbias32 of Chris Wellons)."""
    total = 0.0
    for i, x in enumerate(values):
        h = (i * 0x9e3779b1 + pattern * 0x85ebca6b) & 0xffffffff
        h = ((h ^ h >> 16) * 0x7feb352d) & 0xffffffff
        h = ((h ^ h >> 15) * 0x846ca68b) & 0xffffffff
        total += -x if h >> 31 else x
    return total
