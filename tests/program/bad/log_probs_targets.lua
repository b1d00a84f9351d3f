-- expect: log_probs_targets\.lua:14: log_probs: logits fp32\[2,8,16\] need targets int32\[2,8\], but these are bool
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens) return self.out(self.embed(tokens)) end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.sum(nn.log_probs(m(b.tokens), nn.lt(b.targets, 3))) end,
  optimizer = optim.SGD { lr = 0.1 },
}
