-- expect: pair_grad_dtype\.lua:8: mp_policy: gradients of grad_dtype = "fp32" cannot be summed in reduce_dtype = "bf16" \(\S*pair_grad_dtype\.lua:9\)
-- args: --world 2
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.out = nn.Embedding(16, 4), nn.Linear(4, 16)
nn.fully_shard(model, {
  mp_policy = {
    grad_dtype = "fp32",
    reduce_dtype = "bf16",
  },
})
function model:forward(tokens) return self.out(self.embed(tokens)) end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.SGD { lr = 0.1 },
}
