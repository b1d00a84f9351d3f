"""nn.rand and nn.randn: what they are distributed as, and what their bits depend on: the seed, the step and the sample, nothing of the plan.

Relies on: harness.py. Relied on by: run.py."""
import os

from harness import SHARDC, check, close, losses, must, read_log, scratch

MODEL = """local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 8, recompute = false, n = 64, accumulate = 1 }
local m = nn.module "Net"
m.w, m.noisy = nn.parameter({ o.n }, { init = nn.init.ones() }), nn.module "Noisy"
function m.noisy:forward(x) return x * x * nn.randn { o.batch, o.n } end
if o.recompute then nn.checkpoint_wrapper(m.noisy) end
function m:forward(x)
  local u, z, y = nn.rand { o.batch, o.n }, nn.randn { o.batch, o.n }, nn.randn { o.batch, 1, 3 }
  for k = 1, 4 do
    nn.log_metric("u" .. k, (u ^ k):mean())
    nn.log_metric("z" .. k, (z ^ k):mean())
  end
  nn.log_metric("zz", (z:slice(1, 0, o.n // 2) * z:slice(1, o.n // 2, o.n)):mean()) -- both of a pair
  nn.log_metric("outside", nn.cast(nn.logical_or(nn.lt(u, 0), nn.ge(u, 1)), "fp32"):sum())
  return (self.noisy(x:reshape(o.batch, 1) + self.w) + u * self.w):mean() + y:mean()
end
nn.fully_shard(m)
return nn.training { model = m, batch = { x = nn.input("fp32", { o.batch }) }, loss = function(m, b) return m(b.x) end, optimizer = optim.SGD { lr = 0.1 },
                     accumulate = o.accumulate }
"""


def program(folder, name, world, *settings):
    lua, out = os.path.join(folder, "m.lua"), os.path.join(folder, name)
    with open(lua, "w") as f:
        f.write(MODEL)
    must([SHARDC, "build", lua, "--world", str(world), *sum((["--set", s] for s in settings), []), "-o", out])
    return out


def go(folder, binary, steps, *args):
    log = os.path.join(folder, "log.jsonl")
    with open(os.path.join(folder, "zeros.npy"), "wb") as f:
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (24,), }".ljust(117) + "\n"
        f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(24 * 4))
    must([binary, "--data", "x=" + f.name, "--steps", str(steps), "--seed", "5", "--log", log, *args])
    return read_log(log)


def test_moments():
    """Of 8 x 40000 numbers; each bound is 6 deviations of the mean."""
    folder = scratch("random_moments")
    told, n = go(folder, program(folder, "m", 1, "n=40000"), 1)[0], 8 * 40000
    for k in range(1, 5):
        mean, variance = 1 / (k + 1), 1 / (2 * k + 1) - 1 / (k + 1) ** 2
        check(abs(told["u%d" % k] - mean) < 6 * (variance / n) ** 0.5, "uniform, power %d: %s" % (k, told))
        mean, square = ((0, 1), (1, 3), (0, 15), (3, 105))[k - 1]
        check(abs(told["z%d" % k] - mean) < 6 * ((square - mean ** 2) / n) ** 0.5, "normal, power %d: %s" % (k, told))
    check(abs(told["zz"]) < 6 * (2 / n) ** 0.5 and told["outside"] == 0, told)


def test_bits_go_by_the_sample():
    """On one rank, made again, resumed: bit for bit; on 2 and 4 ranks and in microbatches: the same numbers, summed in another order."""
    folder = scratch("random_samples")
    one = program(folder, "one", 1)
    first = losses(go(folder, one, 3))
    check(len(set(first)) == 3, "each step draws anew: %s" % first)
    check(losses(go(folder, program(folder, "again", 1, "recompute=true"), 3)) == first, "recomputed")
    for name, world, settings in ("two", 2, ["batch=4"]), ("four", 4, ["batch=2"]), ("parts", 1, ["batch=2", "accumulate=4"]):
        close(losses(go(folder, program(folder, name, world, *settings), 3)), first, 1e-6, name)
    check(losses(go(folder, one, 3, "--seed", "6")) != first, "another seed")
    state = os.path.join(folder, "state")
    go(folder, one, 2, "--save", state)
    check(losses(go(folder, one, 3, "--resume", state))[-1:] == first[2:], "resumed")


def test_validation_draws():
    folder = scratch("random_validation")
    one = program(folder, "one", 1)
    told = [line["val_loss"] for line in go(folder, one, 2, "--val-data", "x=" + os.path.join(folder, "zeros.npy"), "--eval-every", "1", "--lr", "0") if "val_loss" in line]
    check(len(told) >= 2 and len(set(told)) == len(told), told)
