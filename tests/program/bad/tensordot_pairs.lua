-- expect: tensordot_pairs\.lua:7: tensordot: 2 dimensions of the first go with 1 of the second
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  return nn.tensordot(x, x, { { 0, 1 }, { 0 } })
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
