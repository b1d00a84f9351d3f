-- expect: assign_update_parameter\.lua:9: mean: nn.assign.s update computes from buffers and from what was reduced, and from nothing else; do it in forward, before nn.assign
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.seen, model.count = nn.Embedding(16, 4), nn.buffer { 4 }, nn.buffer({}, { dtype = "int32" })
model.norm = nn.BatchNorm(4)
local apart = nn.buffer { 4 }
function model:forward(tokens)
  local x = self.embed(tokens)
  nn.assign(self.seen, x, { update = function(old, new) return nn.mean(self.embed.weight, 0) end })
  return x
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
