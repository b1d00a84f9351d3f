-- expect: distillation_classes\.lua:14: linear_distillation: x fp32\[2,8,4\] and 16 classes need a teacher with as many rows and classes, and its fp32\[2,8,4\] has 4 classes
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
  loss = function(m, b) return nn.linear_distillation(m(b.tokens), m.out.weight, m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
