-- expect: batch_norm_channels\.lua:9: batch_norm: weight must be a tensor \[8\].*write nn.BatchNorm\(8\)
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
model.norm = nn.BatchNorm(3)
function model:forward(tokens)
  local x = self.embed(tokens)
  x = self.norm(x)
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
