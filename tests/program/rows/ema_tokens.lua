-- A model of tokens that keeps an average of its weights, to validate, sample and export.
local nn, optim = require "nn", require "optim"
local Net = nn.module "Net"
Net.embed, Net.up, Net.head = nn.Embedding(256, 16), nn.Linear(16, 32), nn.Linear(32, 256)
function Net:forward(tokens) return self.head(nn.tanh(self.up(self.embed(tokens)))) end
nn.fully_shard(Net, { mp_policy = { param_dtype = "bf16", reduce_dtype = "fp32" } })
return nn.training {
  model = Net,
  batch = {
    tokens  = nn.input("int32", { 2, 16 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 16 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  sample = { logits = function(m, b) return m(b.tokens) end },
  optimizer = optim.AdamW { lr = 1e-2 },
  ema = { decay = 0.9 },
}
