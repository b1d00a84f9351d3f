-- expect: assign_mask\.lua:9: nn.assign: bool\[2,8,4\] is a mask, and masks have no sum; count with
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.seen, model.count = nn.Embedding(16, 4), nn.buffer { 4 }, nn.buffer({}, { dtype = "int32" })
model.norm = nn.BatchNorm(4)
local apart = nn.buffer { 4 }
function model:forward(tokens)
  local x = self.embed(tokens)
  nn.assign(self.count, nn.gt(x, 0), { reduce = "sum" })
  return x
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
