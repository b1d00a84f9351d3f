-- expect: shard_mesh\.lua:12: nn.mesh: replicate 2 × shard 1 does not make up the world of 1 rank; give --world 2, or leave replicate out: it takes the rest
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end
nn.fully_shard(model, {
  mesh = nn.mesh { replicate = 2, shard = 1 },
})

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
