-- expect: field_name\.lua:3: Net: the field 'a.b' cannot be part of a path
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model["a.b"] = nn.Linear(4, 4)

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
