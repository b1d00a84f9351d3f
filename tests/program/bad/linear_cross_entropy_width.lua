-- expect: linear_cross_entropy_width\.lua:14: linear_cross_entropy: x fp32\[2,8,4\] needs a weight \[classes,4\], and it is fp32\[4,16\]
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
  loss = function(m, b) return nn.linear_cross_entropy(m(b.tokens), m.out.weight:transpose(0, 1), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
