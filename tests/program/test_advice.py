"""What messages tell people to do, done: each mistake is answered with its remedy, and the remedy makes a program that works.

Relies on: harness.py. Relied on by: run.py."""
import os
import re
import struct

from harness import SHARDC, check, command, scratch, shardc

NET = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.mid, model.out = nn.Embedding(16, 4), nn.Linear(4, 4), nn.Linear(4, 16)
%(fields)s
function model:forward(tokens)
  local x = self.embed(tokens)
  %(body)s
  return self.out(self.mid(x))
end
%(shard)s
return nn.training {
  model = %(model)s,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }), targets = nn.input(%(targets)s, { 2, 8 }, { from = "tokens", shift = 1 }), %(batch)s },
  loss = function(m, b) %(loss)s end,
  optimizer = optim.SGD { lr = 0.1 }, %(more)s
}
"""
PLAIN = dict(fields="", body="", shard="nn.fully_shard(model)", model="model", targets='"int32"', batch="", loss="return nn.cross_entropy(m(b.tokens), b.targets)", more="")
SAMPLE = "sample = { logits = function(m, b) return %s end },"


def write(folder, **parts):
    path = os.path.join(folder, "net.lua")
    with open(path, "w") as f:
        f.write(NET % dict(PLAIN, **parts))
    return path


def shard(options):
    return dict(shard="nn.fully_shard(model.mid, { %s }) nn.fully_shard(model.out) nn.fully_shard(model)" % options)


TIED = dict(fields="model.out = nn.Linear(4, 16, { bias = false }) model.out.weight = model.embed.weight local HOST = { offload = { params = true } }")

# world, the mistake, what the message tells people to do, that done (a world: with so many ranks)
ADVICE = [
    (4, shard("mesh = nn.mesh { replicate = 2, shard = 3 }"), r"give --world 6, or leave shard out: it takes the rest$", [6, shard("mesh = nn.mesh { replicate = 2 }")]),
    (6, shard("mesh = nn.mesh { replicate = 4, shard = 3 }"), r"give --world 12, or leave replicate out: it takes the rest$", [12, shard("mesh = nn.mesh { shard = 3 }")]),
    (2, shard("mesh = nn.mesh { shard = 3 }"), r"give --world 3 or a multiple of it$", [3, 6]),
    (3, shard("requires_all_reduce = false"), r"write mesh = nn\.mesh \{ replicate = 3 \}, or requires_gradient_sync = false$",
     [shard("requires_all_reduce = false, mesh = nn.mesh { replicate = 3 }"), shard("requires_gradient_sync = false")]),
    (1, shard("requires_all_reduce = false"), r"write requires_gradient_sync = false$", [shard("requires_gradient_sync = false")]),
    (2, shard("prefetch = { forward = model.out }"), r"or a list of modules, \{ model\.layers\[2\] \}$", [shard("prefetch = { forward = { model.out } }")]),
    (2, shard("unshard_in_backward = false"), r"leave unshard_in_backward out, or write reshard_after_forward = false$", [shard(""), shard("unshard_in_backward = false, reshard_after_forward = false")]),
    (1, shard("mp_policy = { grad_dtype = 'bf16' }"), r"say what they are summed in too, reduce_dtype = \"fp32\"$", [shard("mp_policy = { grad_dtype = 'bf16', reduce_dtype = 'fp32' }")]),
    (1, dict(more="grad_scaler = optim.GradScaler {},"), r"leave grad_scaler out, or set mp_policy = \{ param_dtype = \"fp16\" \} there, or write optim\.GradScaler \{ without_fp16 = true \}$",
     [{}, dict(more="grad_scaler = optim.GradScaler {},", shard="nn.fully_shard(model, { mp_policy = { param_dtype = 'fp16' } })"), dict(more="grad_scaler = optim.GradScaler { without_fp16 = true },")]),
    (1, dict(fields="nn.freeze(model)"), r"leave at least one of its parameters trainable: no nn\.freeze, no requires_grad = false$", [dict(fields="nn.freeze(model.embed) nn.freeze(model.mid)")]),
    (1, dict(loss="return nn.sum(nn.cast(nn.sum(m(b.tokens)), 'int32'))"), r"loss returned int32\[\].*cast it to \"fp32\"$", [dict(loss="return nn.cast(nn.sum(m(b.tokens)), 'fp32')")]),
    (1, dict(loss="return m(b.tokens)"), r"reduce it with nn\.mean or nn\.sum$", [dict(loss="return nn.mean(m(b.tokens))"), dict(loss="return nn.sum(m(b.tokens))")]),
    (1, dict(targets='"int64"'), r"cross_entropy: .*int64\[2,8\]; declare them as nn\.input\(\"int32\", \.\.\.\)$", [{}]),
    (1, dict(model="nil"), r"model is missing, or nil; write model = the module that loss calls \(does the function that makes it lack its `return`\?\)$", [{}]),
    (1, dict(fields="kept = nn.parameter({ 4 }, { dtype = 'int32' })"), r"or nn\.buffer for what is not trained$", [dict(fields="model.kept = nn.buffer({ 4 }, { dtype = 'int32' })", body="x = x + self.kept")]),
    (1, dict(more="sample = function(m, b) return m(b.tokens) end,"), r"sample is a function; write sample = \{ logits = function\(m, b\) \.\.\. end \}$", [dict(more=SAMPLE % "m(b.tokens)")]),
    (1, dict(more="sample = { inputs = { tokens = 3 }, logits = function(m, b) return m(b.tokens) end },"), r"inputs are made by nn\.input\(\"int32\", \{ 1, seq \}, \{ from = \"tokens\" \}\)$",
     [dict(more='sample = { inputs = { tokens = nn.input("int32", { 1, 8 }, { from = "tokens" }) }, logits = function(m, b) return m(b.tokens) end },')]),
    (1, dict(fields="model.more = { a = nn.Linear(4, 4) }"), r"write nn\.module \"Name\", with a field for each, so that they are part of the model$",
     [dict(fields='model.more = nn.module "More" model.more.a = nn.Linear(4, 4)', body="x = self.more.a(x)")]),
    (1, dict(fields="model.more = { nn.Linear(4, 4) }"), r"write nn\.list \{ \.\.\. \}, so that they are part of the model$", [dict(fields="model.more = nn.list { nn.Linear(4, 4) }", body="x = self.more[1](x)")]),
    (2, dict(TIED, shard="nn.fully_shard(model.embed, HOST) nn.fully_shard(model.out) nn.fully_shard(model)"), r"say the same in both, and in the model, to which it belongs$",
     [dict(TIED, shard="nn.fully_shard(model.embed, HOST) nn.fully_shard(model.out, HOST) nn.fully_shard(model, HOST)")]),
    (1, dict(body="x = nn.matmul(x, nn.zeros({ 4, 4 }, 'bf16'))"), r"nn\.cast\(a, b\) gives one the dtype of the other$", [dict(body="x = nn.matmul(x, nn.cast(nn.zeros({ 4, 4 }, 'bf16'), x))")]),
    (1, dict(body="x = nn.where(x, x, 0)"), r"compare it: nn\.ne\(condition, 0\)$", [dict(body="x = nn.where(nn.ne(x, 0), x, 0)")]),
]


def test_models():
    folder, n = scratch("advice"), 0
    for world, mistake, remedy, follow in ADVICE:
        rc, _, err = command([SHARDC, "predict", write(folder, **mistake), "--world", str(world)])
        check(rc == 1 and re.search(remedy, err.strip(), re.M), "no /%s/: exit %d, %s" % (remedy, rc, err))
        for done in follow:
            ranks, parts = (done, mistake) if isinstance(done, int) else (world, done)
            rc, _, err = command([SHARDC, "predict", write(folder, **parts), "--world", str(ranks)])
            check(rc == 0, "%s, followed with %s at world %d: exit %d, %s" % (remedy, done, ranks, rc, err))
            n += 1
    return "%d remedies of %d messages" % (n, len(ADVICE))


def test_sampling():
    """--sample says how a sample program is written; so does one that takes more than tokens, or gives too few logits."""
    folder = scratch("advice")
    data = os.path.join(folder, "tokens.bin")
    with open(data, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, 4000, *[0] * 253) + struct.pack("<4000H", *(7 * i % 16 for i in range(4000))))

    def go(more, *args):
        path, binary = write(folder, more=more), os.path.join(folder, "net")
        shardc("build", path, "-o", binary)
        return command([binary, "--data", data, "--steps", "1", "--sample", "3", *args])
    for more, remedy in (
            ("", r"no sample program; write (sample = \{ logits = function\(m, b\) return m\(b\.tokens\) end \}) in nn\.training"),
            (SAMPLE % "m(b.tokens + b.targets)", r"takes 'targets' besides tokens; .*: write (sample = \{ logits = function\(m, b\) return m\(b\.tokens\) end \}) in nn\.training")):
        rc, _, err = go(more)
        check(rc == 1 and re.search(remedy, err), "no /%s/: exit %d, %s" % (remedy, rc, err))
    written = re.search(remedy, err)[1] + ","
    rc, _, err = go(written, "--prompt", "1 2")
    check(rc == 1 and "give ids, with --sample-format ids" in err, err)
    rc, out, err = command([os.path.join(folder, "net"), "--data", data, "--steps", "1", "--sample", "3", "--prompt", "1 2", "--sample-format", "ids"])
    check(rc == 0 and len(re.findall(r"\d+", out.splitlines()[-1])) >= 3, "a sample: exit %d, %s%s" % (rc, out, err))
    rc, _, err = go('sample = { inputs = { tokens = nn.input("int32", { 1, 8 }, { from = "tokens" }) }, logits = function(m, b) return m(b.tokens):slice(1, 7, 8) end },')
    check(rc == 1 and "let `logits` return those of every position, [1, 8, vocab]" in err, err)
