-- expect: assign_shape\.lua:9: nn.assign: the buffer seen is fp32\[4\] and cannot take fp32\[2,4\]; reshape or cast it
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.seen, model.count = nn.Embedding(16, 4), nn.buffer { 4 }, nn.buffer({}, { dtype = "int32" })
model.norm = nn.BatchNorm(4)
local apart = nn.buffer { 4 }
function model:forward(tokens)
  local x = self.embed(tokens)
  nn.assign(self.seen, nn.mean(x, 1))
  return x
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
