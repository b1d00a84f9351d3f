-- expect: list_nil\.lua:11: nn\.list: entry 1 is nil; entries are modules.*does the function that makes it lack its `return`\?
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
local function Gate()
  local m = nn.module "Gate"
  m.up = nn.Linear(4, 4)
  function m:forward(x) return self.up(x) end
end
model.body = nn.list { Gate(), nn.Linear(4, 4) }
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
