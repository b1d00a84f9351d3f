-- O2: a linear of 25 ms forward and 50 ms backward that is in no unit, then a small one that is one and stays gathered. What
-- the second gathers for a step hides behind the first; with prefetch = 0 it does not.
local nn, optim = require "nn", require "optim"
local o = nn.options { dim = 4, ms = 25.0, prefetch = 1 }

local model = nn.module "Net"
model.slow, model.fast = nn.Linear(o.dim, o.dim), nn.Linear(o.dim, o.dim)
function model:forward(x)
  return self.fast(nn.debug_sleep(self.slow(x), { forward_ms = o.ms, backward_ms = 2 * o.ms }))
end
nn.fully_shard(model.fast, { reshard_after_forward = false, prefetch = { forward = o.prefetch } })

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 2, o.dim }) },
  loss = function(m, b) return nn.sum(m(b.x)) end,
  optimizer = optim.AdamW { lr = 1e-2 },
}
