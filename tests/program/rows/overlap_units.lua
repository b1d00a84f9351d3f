-- O1: linears that each take 25 ms forward and 50 ms backward, each a unit, and the root.
local nn, optim = require "nn", require "optim"
local o = nn.options { dim = 4, linears = 3, ms = 25.0, prefetch = 1, reshard = true }

local function SlowLinear()
  local m = nn.module "SlowLinear"
  m.linear = nn.Linear(o.dim, o.dim, { bias = false })
  function m:forward(x) return nn.debug_sleep(self.linear(x), { forward_ms = o.ms, backward_ms = 2 * o.ms }) end
  return m
end

local model = nn.module "Stack"
model.layers = nn.list {}
for i = 1, o.linears do model.layers[i] = SlowLinear() end
function model:forward(x)
  for _, layer in ipairs(self.layers) do x = layer(x) end
  return x
end

local policy = { reshard_after_forward = o.reshard, prefetch = { forward = o.prefetch, backward = o.prefetch } }
for _, layer in ipairs(model.layers) do nn.fully_shard(layer, policy) end
nn.fully_shard(model, policy)

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 2, o.dim }) },
  loss = function(m, b) return nn.sum(m(b.x)) end,
  optimizer = optim.AdamW { lr = 1e-2 },
}
