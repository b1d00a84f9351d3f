-- expect: pair_save_kept\.lua:8: nn.checkpoint_wrapper: save names what is kept instead of recomputed, but recompute = false at \S*pair_save_kept\.lua:9 keeps all
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.mid = nn.Linear(4, 4)
model.out = nn.Linear(4, 16, { bias = false })
nn.checkpoint_wrapper(model.mid, {
  save = { "matmul" },
  recompute = false,
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
