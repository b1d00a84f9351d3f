-- expect: ignored_experts\.lua:12: ignored_params: experts\.experts\.gate_up_proj holds experts, which the unit.s mesh spreads over 2 ranks; leave out the one or the other
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
nn.fully_shard(model, { mesh = nn.mesh { expert = 2 }, ignored_params = { "*gate_up_proj" } })
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }), targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 0.1 },
}
