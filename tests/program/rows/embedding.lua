-- An embedding as a unit of its own: its backward reads tokens and gradients, never the table.
local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 4, seq = 8, dim = 13, promise = false }
local m = nn.module "Net"
m.embed, m.out = nn.Embedding(256, o.dim), nn.Linear(o.dim, 256)
function m:forward(tokens) return self.out(self.embed(tokens)) end
nn.fully_shard(m.embed, { reshard_after_forward = true, unshard_in_backward = not o.promise })
nn.fully_shard(m.out)
nn.fully_shard(m)
return nn.training {
  model = m,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(model, b) return nn.cross_entropy(model(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 1e-2 },
}
