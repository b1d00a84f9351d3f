-- expect: pair_reshard_nodes\.lua:9: nn.fully_shard: reshard_after_forward = 4: a group of 4 ranks does not divide the 2 ranks of a machine
-- args: --world 8 --nodes 4 --device h200
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.mid = nn.Linear(4, 4)
model.out = nn.Linear(4, 16, { bias = false })
nn.fully_shard(model.mid, {
  reshard_after_forward = 4,
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
