-- expect: muon_host\.lua:\d+: offload: optimizer = "host", but unit .* is updated by optim\.Muon, whose products the device computes; write optimizer = "stream" or true
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed = nn.Embedding(16, 4)
model.out = nn.Linear(4, 16)
function model:forward(tokens)
  local x = self.embed(tokens)

  return self.out(x)
end

nn.fully_shard(model, { offload = { optimizer = "host" } })
return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { 2, 8 }, { from = "tokens" }),
    targets = nn.input("int32", { 2, 8 }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.Muon { lr = 0.1, others = optim.AdamW {} },
}
