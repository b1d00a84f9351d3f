-- expect: pair_reshard_kept\.lua:9: nn.fully_shard: reshard_after_backward = false keeps the unit gathered over the whole step, but reshard_after_forward at \S*pair_reshard_kept\.lua:8 reshards it
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.mid = nn.Linear(4, 4)
model.out = nn.Linear(4, 16, { bias = false })
nn.fully_shard(model.mid, {
  reshard_after_forward = true,
  reshard_after_backward = false,
})
function model:forward(tokens)
  return self.out(nn.relu(self.mid(self.embed(tokens))))
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
