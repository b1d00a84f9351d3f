-- expect: pair_shared_divide\.lua:10: nn.fully_shard: parameter embed.weight is shared by embed and out, whose gradient_divide_factor differ \(\S*pair_shared_divide\.lua:10 and \S*pair_shared_divide\.lua:13\)
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.mid = nn.Linear(4, 4)
model.out = nn.Linear(4, 16, { bias = false })
model.out.weight = model.embed.weight
nn.fully_shard(model.embed, {
  gradient_divide_factor = 1,
})
nn.fully_shard(model.out, {
  gradient_divide_factor = 2,
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
