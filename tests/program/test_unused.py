"""What a model declares and no program uses: told by `predict`, in plans and at the start of a run, in a line for each kind.

Relies on: harness.py. Relied on by: run.py."""
import json
import os

from harness import ROOT, SHARDC, check, command, corpus, entries, must, scratch, shardc

NET = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
local function Block()
  local b = nn.module "Block"
  b.up, b.drop = nn.Linear(8, 8), nn.Dropout(0.1)
  b.bias = nn.parameter { 8 }
  b.frozen = nn.parameter({ 8 }, { requires_grad = false })
  b.experts = nn.list { nn.Linear(8, 8), nn.Linear(8, 8) }
  function b:forward(x) return x + self.up(x) end
  return b
end
model.embed, model.layers = nn.Embedding(256, 8), nn.list {}
for i = 1, 12 do model.layers[i] = Block() end
model.head = nn.Linear(8, 256, { bias = false })
model.head.weight = model.embed.weight                     -- tied: read, and its module never called
model.none, model.probe = nn.list {}, nn.Linear(8, 256)
function model:hidden(tokens)
  local x = self.embed(tokens)
  for _, block in ipairs(self.layers) do x = block(x) end
  return x
end
function model:forward(tokens) return nn.matmul(self:hidden(tokens), self.embed.weight:transpose(0, 1)) end
nn.fully_shard(model)
return nn.training {
  model = model,
  batch = {
    tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
    %s
  },
  loss = function(m, b) %s return nn.cross_entropy(m(b.tokens), b.targets) end,
  sample = { inputs = { prompt = nn.input("int32", { 1, 8 }, { from = "tokens" }) }, logits = function(m, b) return m.probe(m:hidden(b.prompt)) end },
  optimizer = optim.SGD { lr = 0.1 },
}
"""
MASK = 'mask = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 2 }),'
LINES = [
    "unused   parameters that the loss does not reach: layers.0-11.bias (12), layers.0-11.experts.0-1.bias (24), layers.0-11.experts.0-1.weight (24), probe.bias, probe.weight",
    "unused   inputs that nothing reads: mask",
    "unused   modules that are never called: layers.0-11.drop (12), layers.0-11.experts.0-1 (24)",
]


def told(text):
    """A prediction puts them into lines of 80 columns, a run does not."""
    predicted = ["unused   " + said for label, said in entries(text) if label == "unused"]
    return predicted + [line for line in text.splitlines() if line.startswith("unused")]


def test_predict_and_the_start_of_a_run_tell():
    """An input that is read by what nobody reads is read by nothing; a module that only sampling calls is used; folded by number, in
    natural order; in JSON each name."""
    folder = scratch("unused")
    model, binary = os.path.join(folder, "net.lua"), os.path.join(folder, "net")
    with open(model, "w") as f:
        f.write(NET % (MASK, "local dead = b.mask * 2"))
    check(told(shardc("predict", model)) == LINES, "predict: %s" % told(shardc("predict", model)))
    names = json.loads(shardc("predict", model, "--format", "json"))["unused"]
    check(names["inputs"] == ["mask"] and len(names["parameters"]) == 62 and "layers.7.drop" in names["modules"], "JSON: %s" % names)
    shardc("build", model, "-o", binary)
    for plan in (binary, binary + ".plan.json"):
        check(told(shardc("predict", plan)) == LINES, "%s: %s" % (plan, told(shardc("predict", plan))))
    start = told(must([binary, "--data", corpus(), "--steps", "1"]))
    check(start == LINES, "the start of a run: %s" % start)
    check(not told(must([binary, "--data", corpus(), "--steps", "1", "--quiet"])), "--quiet")


def test_models_that_use_all_say_nothing():
    """Tied and frozen parameters, buffers, inputs of sampling alone, empty lists."""
    for name in sorted(os.listdir(os.path.join(ROOT, "models"))):
        if name.endswith(".lua"):
            check(not told(shardc("predict", os.path.join(ROOT, "models", name))), name)
    model = os.path.join(scratch("unused"), "net.lua")
    text = (NET % ("", "")).replace("self.up(x)", "self.up(self.drop(x)) + self.bias + self.experts[1](x) + self.experts[2](x)")
    with open(model, "w") as f:
        f.write(text.replace("model.probe = nn.list {}, nn.Linear(8, 256)", "model.probe = nn.list {}, nn.freeze(nn.Linear(8, 256))"))
    check(not told(shardc("predict", model)), told(shardc("predict", model)))


def test_modules_that_were_held_or_lend_a_part_may_go():
    """A head that is replaced, a weight that is taken out of a module, a list that is taken apart: nobody is refused."""
    model = os.path.join(scratch("unused"), "net.lua")
    more = ("model.old = nn.Linear(8, 4)\nmodel.old = nn.Linear(8, 2)\n"
            "model.taken = nn.Linear(8, 8).weight\nlocal parts = nn.list { nn.Linear(8, 8) }\nmodel.part = parts[1]\nfunction model:hidden")
    with open(model, "w") as f:
        f.write((NET % ("", "")).replace("function model:hidden", more, 1))
    rc, out, err = command([SHARDC, "predict", model])
    check(rc == 0, err)
    with open(model, "a") as f:
        f.seek(0), f.truncate()
        f.write((NET % ("", "")).replace("function model:hidden", "local lost = nn.Linear(3, 3)\nfunction model:hidden", 1))
    rc, out, err = command([SHARDC, "predict", model])
    check(rc == 1 and "net.lua:17: nn.Linear(3, 3) is made and is part of nothing" in err, err)
