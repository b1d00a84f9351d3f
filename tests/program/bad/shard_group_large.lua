-- expect: shard_group_large\.lua:12: nn.fully_shard: reshard_after_forward must be true, false or the size of a group \(2 or more\), not the number 99999999999
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end
nn.fully_shard(model, {
  reshard_after_forward = 99999999999,
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
