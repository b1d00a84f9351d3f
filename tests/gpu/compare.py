"""Two logs of a training run (JSON lines): the largest relative difference of losses and gradient norms, and both ends.

Relies on: python3. Relied on by: whoever compares the CUDA program with the CPU's, or a run with another."""
import json
import sys


def steps(path):
    return [j for j in map(json.loads, open(path)) if "loss" in j]


a, b = steps(sys.argv[1]), steps(sys.argv[2])
worst = {k: max(abs(x[k] - y[k]) / max(1e-30, abs(y[k])) for x, y in zip(a, b)) for k in ("loss", "grad_norm")}
print("%d and %d steps: loss within %.2e, norm within %.2e; last loss %.6f and %.6f; identical: %s"
      % (len(a), len(b), worst["loss"], worst["grad_norm"], a[-1]["loss"], b[-1]["loss"],
         all(x["loss"] == y["loss"] and x["grad_norm"] == y["grad_norm"] for x, y in zip(a, b))))
