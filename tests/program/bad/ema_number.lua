-- expect: ema_number\.lua:13: nn.training: ema must be a table
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
function model:forward(tokens) return self.embed(tokens) end
nn.fully_shard(model)

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(nn.cast(m(b.tokens), "fp32")) end,
  optimizer = optim.SGD { lr = 0.1 },
  ema = 0.999,
}
