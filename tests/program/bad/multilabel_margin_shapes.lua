-- expect: multilabel_margin_shapes\.lua:7: multilabel_margin_loss: fp32\[2,8,4\] and int32\[2,8\] must be of one shape
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens)
  local x = self.embed(tokens)
  return nn.multilabel_margin_loss(x, tokens)
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
