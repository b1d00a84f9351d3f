-- expect: moe_balance_rate\.lua:5: nn\.MoE: balance_rate changes the correction, and there is none
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.experts = nn.MoE(4, 8, { experts = 6, top = 2, balance_rate = 0.001 })
model.out = nn.Linear(4, 16)
function model:forward(x)
  local y = self.experts(self.embed(x))
  return self.out(y)
end
nn.fully_shard(model)
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }), targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 0.1 },
}
