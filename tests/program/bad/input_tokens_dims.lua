-- expect: input_tokens_dims\.lua:10: nn.input: .x. is int64 of 3 dimensions
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(8, 16)
function model:forward(x) return self.out(x) end

return nn.training {
  model = model,
  batch = {
    x       = nn.input("int64", { 2, 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.x), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
