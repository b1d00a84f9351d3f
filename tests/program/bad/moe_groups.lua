-- expect: moe_groups\.lua:6: nn\.MoE: 6 experts in 4 groups, of which 1 are kept, do not give 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
model.moe = nn.MoE(4, 8, { experts = 6, top = 2, groups = 4, kept_groups = 1 })
function model:forward(tokens)
  local x = self.embed(tokens)
  return self.out(x)
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
