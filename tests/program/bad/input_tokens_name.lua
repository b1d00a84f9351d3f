-- expect: input_tokens_name\.lua:10: nn.input: .tokens. is fp32 of 2 dimensions, but tokens are whole numbers
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(8, 16)
function model:forward(x) return self.out(x) end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("fp32", { 2, 8 }),
    targets = nn.input("int32", { 2 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
