-- expect: linear_shape\.lua:6: matmul: x fp32\[2,8,4\] · Wᵀ with W fp32\[8,5\]: 4 ≠ 5\n  in mlp.up = nn.Linear\(5, 8\), made at \S+:4; write nn.Linear\(4, 8\)
local nn, optim = require "nn", require "optim"
local function MLP()
  local m = nn.module "MLP"; m.up = nn.Linear(5, 8)
  function m:forward(x)
    return self.up(x)
  end
  return m
end
local model = nn.module "Net"
model.embed, model.mlp = nn.Embedding(16, 4), MLP()
function model:forward(tokens) return self.mlp(self.embed(tokens)) end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
