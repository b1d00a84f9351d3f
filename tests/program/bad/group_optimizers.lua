-- expect: group_optimizers\.lua:19: optim.SGD: groups have more than 4 optimizers; give some groups the same one
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out, model.more = nn.Linear(4, 16), nn.Linear(4, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  x = self.more(x)
  return self.out(x)
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { groups = { { match = "embed.*", optimizer = optim.Adam {} }, { match = "out.weight", optimizer = optim.Adam {} }, { match = "out.bias", optimizer = optim.Lion {} }, { match = "more.*", optimizer = optim.Lion {} } } },
}
