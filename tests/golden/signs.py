"""Fixed patterns of signs: sums of a tensor under them stand for its values in NAME.json. And weights by the same hash, for which no file is needed.

Relies on: nothing. Relied on by: make.py, fp8.py, tests/program/test_golden.py, test_fp8.py."""
import struct

PATTERNS = 3


def hash_of(i, pattern):
    """32 bits (lowbias32 of Chris Wellons)."""
    h = (i * 0x9e3779b1 + pattern * 0x85ebca6b) & 0xffffffff
    h = ((h ^ h >> 16) * 0x7feb352d) & 0xffffffff
    h = ((h ^ h >> 15) * 0x846ca68b) & 0xffffffff
    return h ^ h >> 16


def hashed(pattern, n, name, dims):
    """n initial values of the parameter `name`, fp32: of a norm round 1, else round 0, matrices of some 64 inputs with about their size."""
    norm = dims < 2 and not name.endswith("bias") and ("ln_" in name or "norm" in name)
    middle, width = 1.0 if norm else 0.0, 0.2 if dims > 1 else 0.1
    return [struct.unpack("f", struct.pack("f", middle + width * (hash_of(i, pattern + 7) / 2 ** 31 - 1)))[0] for i in range(n)]


def signed_sum(values, pattern):
    """Sum of x[i] × ±1; the sign is the highest bit of a hash of i and the pattern."""
    total = 0.0
    for i, x in enumerate(values):
        total += -x if hash_of(i, pattern) >> 31 else x
    return total
