-- expect: pair_shared_grad\.lua:10: nn.fully_shard: parameter embed.weight is shared by embed and out, whose mp_policy.grad_dtype differ \(\S*pair_shared_grad\.lua:10 and \S*pair_shared_grad\.lua:13\); it lies in one place
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.mid = nn.Linear(4, 4)
model.out = nn.Linear(4, 16, { bias = false })
model.out.weight = model.embed.weight
nn.fully_shard(model.embed, {
  mp_policy = { reduce_dtype = "fp32", grad_dtype = "bf16" },
})
nn.fully_shard(model.out, {
  mp_policy = { reduce_dtype = "fp32" },
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
