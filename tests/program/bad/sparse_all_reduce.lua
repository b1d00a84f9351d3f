-- expect: sparse_all_reduce\.lua:4: nn\.Embedding: sparse = true exchanges the rows of embed\.weight in every microbatch, but .*sparse_all_reduce\.lua:11 says requires_all_reduce = false
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4, { sparse = true })
model.out = nn.Linear(4, 16)

function model:forward(tokens)
  local x = self.embed(tokens)
  return self.out(x)
end
nn.fully_shard(model, { mesh = nn.mesh { replicate = 1 }, requires_all_reduce = false })
return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
