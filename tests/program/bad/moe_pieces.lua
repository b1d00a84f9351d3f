-- expect: moe_pieces\.lua:5: nn\.MoE: 6 experts have no 4 equal pieces
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.experts = nn.MoE(4, 8, { experts = 6, top = 2, pieces = 4 })
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
