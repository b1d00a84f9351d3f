-- expect: assign_batch_norm_after\.lua:9: nn.assign: norm.running_mean is updated by the batch_norm at .*:10; assign to a buffer of its own
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.seen, model.count = nn.Embedding(16, 4), nn.buffer { 4 }, nn.buffer({}, { dtype = "int32" })
model.norm = nn.BatchNorm(4)
local apart = nn.buffer { 4 }
function model:forward(tokens)
  local x = self.embed(tokens)
  nn.assign(self.norm.running_mean, nn.mean(x, { 0, 1 }))
  x = nn.reshape(self.norm(nn.reshape(x, 16, 4)), 2, 8, 4)
  return x
end

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }) },
  loss = function(m, b) return nn.mean(m(b.tokens)) end,
  optimizer = optim.SGD { lr = 0.1 },
}
