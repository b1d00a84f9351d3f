-- Layers that each sum something over all ranks: what tensor parallelism does in a forward, on whole weights.
local nn, optim = require "nn", require "optim"

local o = nn.options { batch = 2, seq = 8, vocab = 256, dim = 16, layers = 4, exchange = true, checkpoint = false, lr = 1e-2,
  precision = nn.choice("fp32", "fp64") }
local stored = { dtype = o.precision }

local function Block()
  local m = nn.module "Block"
  m.norm, m.up, m.down = nn.RMSNorm(o.dim, stored), nn.Linear(o.dim, 4 * o.dim, stored), nn.Linear(4 * o.dim, o.dim, stored)
  function m:forward(x)
    local y = self.down(nn.silu(self.up(self.norm(x))))
    return x + (o.exchange and nn.all_reduce(y) / nn.ranks() or y)
  end
  return m
end

local model = nn.module "Net"
model.embed, model.head, model.layers = nn.Embedding(o.vocab, o.dim, stored), nn.Linear(o.dim, o.vocab, stored), nn.list {}
for i = 1, o.layers do model.layers[i] = Block() end
function model:forward(x)
  x = self.embed(x)
  for _, layer in ipairs(self.layers) do x = layer(x) end
  return self.head(x)
end

for _, layer in ipairs(model.layers) do
  if o.checkpoint then nn.checkpoint_wrapper(layer) end
  nn.fully_shard(layer)
end
nn.fully_shard(model)

return nn.training {
  model = model,
  batch = {
    tokens = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
}
