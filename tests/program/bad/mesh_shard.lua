-- expect: mesh_shard\.lua:10: nn.mesh: shard 3 does not divide the world of 2 ranks; give --world 3 or a multiple of it
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  return self.out(self.embed(tokens))
end
nn.fully_shard(model, { mesh = nn.mesh { shard = 3 } })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
