-- expect: loss_input\.lua:15: loss returned an input or a parameter as it is
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 1 }) },
  loss = function(m, b) return b.x end,
  optimizer = optim.SGD { lr = 0.1 },
}
