-- expect: shard_backward\.lua:9: nn.fully_shard: unshard_in_backward = false, but the backward of \S+:\d+ \(matmul\) reads out.weight
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(16, 4), nn.Linear(4, 16)
function model:forward(tokens)
  return self.out(self.embed(tokens))
end
nn.fully_shard(model.out, { unshard_in_backward = false })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
