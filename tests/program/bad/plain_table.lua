-- expect: plain_table\.lua:3: Net: layers is a plain table that holds modules; write nn.list
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.layers = { nn.Linear(4, 4) }
function model:forward(x) return x end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
