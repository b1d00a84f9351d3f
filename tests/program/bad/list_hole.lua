-- expect: list_hole\.lua:6: nn\.list: entry 2 is nil; entries are modules
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
model.body = nn.list { [1] = nn.Linear(4, 4), [3] = nn.Linear(4, 4) }
function model:forward(tokens)
  local x = self.embed(tokens)
  for _, layer in ipairs(self.body) do x = layer(x) end
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
