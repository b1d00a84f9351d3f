-- expect: moe_names\.lua:6: nn\.MoE: names must be three names such as \{ "w1", "w3", "w2" \}, of gate, up and down, not a table
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
model.moe = nn.MoE(4, 8, { experts = 6, top = 2, names = { "w1", "w3" } })
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
