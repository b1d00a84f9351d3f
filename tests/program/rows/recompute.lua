-- Rows C1, C2 and C4: three linears 3 -> 3 in sequence, as three units or as one, recomputed or offloaded inside of a unit, round
-- it, or where the loss calls it.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  width = 3, batch = 10, layers = 3, dropout = 0.0,
  units = nn.choice("three", "one"),
  wrap = nn.choice("none", "inside", "outside", "call"), -- of the unit (of all units, where there are three)
  activations = nn.choice("recompute", "offload"), params = false, -- what a wrapper does; offload.params
}
local how = o.activations == "offload" and { recompute = false, offload = { "*" } } or {}
local shard = { offload = { params = o.params }, reshard_after_forward = true }

local function Linear()
  local m = nn.module "Layer"
  m.inner = nn.Linear(o.width, o.width)
  function m:forward(x) return nn.dropout(self.inner(x), o.dropout) end
  return m
end

local function Sequence() -- its parts are called by `body`, so that a wrapper can stand inside of a unit and outside
  local m, body = nn.module "Sequence", nn.module "Body"
  body.layers = nn.list {}
  for i = 1, o.layers do body.layers[i] = Linear() end
  function body:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
  m.body = body
  function m:forward(x) return self.body(x) end
  return m
end

local m, unit = nn.module "Model", Sequence()
m.seq = unit
function m:forward(x) return self.seq(x) end

if o.units == "three" then
  for _, layer in ipairs(unit.body.layers) do
    nn.fully_shard(layer, shard)
    if o.wrap == "inside" then nn.checkpoint_wrapper(layer.inner, how) end
  end
  if o.wrap == "outside" then nn.checkpoint_wrapper(unit, how) end
else
  nn.fully_shard(unit, shard)
  if o.wrap == "inside" then nn.checkpoint_wrapper(unit.body, how) end
  if o.wrap == "outside" then nn.checkpoint_wrapper(m, how) end
end
nn.fully_shard(m, shard)

return nn.training {
  model = m,
  batch = { x = nn.input("int32", { o.batch, o.width }, { from = "tokens" }) },
  loss = function(model, b)
    local x = nn.cast(b.x, "fp32") * (1 / 128) - 1
    local y = o.wrap == "call" and nn.checkpoint(how, model.seq, x) or model(x)
    return nn.mean(y * y)
  end,
  optimizer = optim.Adam { lr = 1e-2 },
}
