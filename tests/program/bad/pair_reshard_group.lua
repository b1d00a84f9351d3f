-- expect: pair_reshard_group\.lua:10: nn.fully_shard: reshard_after_forward = 3: a group of 3 ranks does not divide the 4 ranks that the world shards over; write true
-- args: --world 4
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.mid = nn.Linear(4, 4)
model.out = nn.Linear(4, 16, { bias = false })
nn.fully_shard(model.mid, {
  prefetch = { forward = 2 },
  reshard_after_forward = 3,
})
nn.fully_shard(model)
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
