-- expect: distillation_temperature\.lua:14: distillation: temperature must be a number above 0, not the number 0
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens) return self.embed(tokens) end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.distillation(m.out(m(b.tokens)), m.out(m(b.tokens)), { temperature = 0 }) end,
  optimizer = optim.SGD { lr = 0.1 },
}
