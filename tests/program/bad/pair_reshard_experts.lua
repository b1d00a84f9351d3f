-- expect: pair_reshard_experts\.lua:12: nn\.fully_shard: reshard_after_forward = 4: a group of 4 ranks does not divide the 2 that shard an expert over the mesh at .*pair_reshard_experts\.lua:12; write true, false, or a divisor
-- args: --world 4
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.experts = nn.MoE(4, 8, { experts = 6, top = 2 })
model.out = nn.Linear(4, 16)
function model:forward(x)
  local y = self.experts(self.embed(x))
  return self.out(y)
end
nn.fully_shard(model, { mesh = nn.mesh { expert = 2 }, reshard_after_forward = 4 })
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }), targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 0.1 },
}
