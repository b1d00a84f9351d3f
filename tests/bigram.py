"""A byte bigram model with add-one-half smoothing: nats per byte on a held-out .bin, the yardstick of `make demo`.

Relies on: python3, llm.c-style .bin files as `shardc data` writes them. Relied on by: tests/demo.sh."""
import array
import math
import sys


def tokens(path):
    data = open(path, "rb").read()
    return array.array("H", data[1024:])


def main():
    train, val = tokens(sys.argv[1]), tokens(sys.argv[2])
    pair = [[0.5] * 256 for _ in range(256)]
    for a, b in zip(train, train[1:]):
        pair[a][b] += 1
    total = [sum(row) for row in pair]
    nats = -sum(math.log(pair[a][b] / total[a]) for a, b in zip(val, val[1:])) / (len(val) - 1)
    print("%.4f" % nats)


main()
