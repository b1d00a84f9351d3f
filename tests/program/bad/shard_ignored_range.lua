-- expect: shard_ignored_range\.lua:8: ignored_params: 'h\.\{3-1\}': a range is \{0-15\}
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(16, 4), nn.Linear(4, 16)
function model:forward(tokens)
  return self.out(self.embed(tokens))
end
nn.fully_shard(model, { ignored_params = "h.{3-1}" })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
