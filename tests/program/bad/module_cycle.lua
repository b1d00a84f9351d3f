-- expect: module_cycle\.lua:4: module cycle: child.parent is the model itself
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.child = nn.module "Child"
model.child.parent = model

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
