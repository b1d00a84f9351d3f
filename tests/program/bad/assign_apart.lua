-- expect: assign_apart\.lua:9: the buffer fp32\[4\] made at .* is used but is not part of the model: assign it to a field of a module
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.seen, model.count = nn.Embedding(16, 4), nn.buffer { 4 }, nn.buffer({}, { dtype = "int32" })
model.norm = nn.BatchNorm(4)
local apart = nn.buffer { 4 }
function model:forward(tokens)
  local x = self.embed(tokens)
  nn.assign(apart, nn.mean(x, { 0, 1 }))
  return x
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
