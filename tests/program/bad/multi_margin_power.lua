-- expect: multi_margin_power\.lua:7: multi_margin_loss: p must be 1 or 2, not the number 3
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  return nn.multi_margin_loss(x, tokens, { p = 3 })
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
