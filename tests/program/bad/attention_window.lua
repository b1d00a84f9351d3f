-- expect: attention_window\.lua:8: attention: window is the number 3: write { left, right }, how many positions before and after its own a position attends to
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)
  local h = x:reshape(2, 8, 2, 2) x = nn.attention { q = h, k = h, v = h, window = 3 }
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
