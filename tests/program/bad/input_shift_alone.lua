-- expect: input_shift_alone\.lua:10: nn.input: shift = 1 moves a window over tokens, but .x. does not come from tokens
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(8, 16)
function model:forward(x) return self.out(x) end

return nn.training {
  model = model,
  batch = {
    x       = nn.input("fp32", { 2, 8 }, { shift = 1 }),
    targets = nn.input("int32", { 2 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.x), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
