-- expect: index_joined\.lua:8: embedding: the index int32\[8\] holds the constant 20, but the table has 16 rows
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)
  x = x + self.embed(nn.concat({ nn.arange(4) * 5, nn.arange(20):slice(0, 12, 15), nn.full({ 1 }, 20):cast("int32") }))
  return self.out(x)
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
