-- expect: rope_sections_in_turns\.lua:8: rope: sections\[2\] = 2 cannot take turns with the others among 3 pairs; make it smaller
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 6)
model.out = nn.Linear(6, 16)
function model:forward(tokens)
  local x = self.embed(tokens)
  x = nn.rope(x:reshape(2, 8, 1, 6), { sections = { 1, 2 }, in_turns = true, positions = nn.expand(nn.arange(8), 2, 2, 8) })
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
