-- expect: input_tokens_rows\.lua:11: nn.input: .y. has 2 rows, but .x. has 4, at .*input_tokens_rows.lua:10; inputs from tokens share their batch
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.out = nn.Linear(8, 16)
function model:forward(x) return self.out(x) end

return nn.training {
  model = model,
  batch = {
    x       = nn.input("int32", { 4, 8 }, { from = "tokens" }),
    y       = nn.input("int32", { 2, 8 }, { from = "tokens" }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.x), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
