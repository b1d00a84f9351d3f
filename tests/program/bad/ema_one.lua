-- expect: ema_one\.lua:13: ema: decay = 1; it must be between 0 and 1
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
  ema = { decay = 1 },
}
