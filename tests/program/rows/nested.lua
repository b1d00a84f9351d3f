-- Row C3: two submodules in sequence, each a linear, two recomputed stacks of four linears, ReLU, a linear; each a unit on a mesh
-- that only replicates.
local nn, optim = require "nn", require "optim"
local o = nn.options { width = 100, batch = 4, recompute = true }

local function Stack(n)
  local m = nn.module "Stack"
  m.layers = nn.list {}
  for i = 1, n do m.layers[i] = nn.Linear(o.width, o.width) end
  function m:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
  return m
end

local function Part()
  local m = nn.module "Part"
  m.first, m.last = nn.Linear(o.width, o.width), nn.Linear(o.width, o.width)
  m.stacks = nn.list { Stack(4), Stack(4) }
  function m:forward(x)
    x = self.first(x)
    for _, stack in ipairs(self.stacks) do x = stack(x) end
    return self.last(nn.relu(x))
  end
  for _, stack in ipairs(m.stacks) do
    if o.recompute then nn.checkpoint_wrapper(stack) end
  end
  nn.fully_shard(m, { mesh = nn.mesh { shard = 1 } })
  return m
end

local m = nn.module "Model"
m.parts = nn.list { Part(), Part() }
function m:forward(x)
  for _, part in ipairs(self.parts) do x = part(x) end
  return x
end
nn.fully_shard(m, { mesh = nn.mesh { shard = 1 } })

return nn.training {
  model = m,
  batch = { x = nn.input("int32", { o.batch, o.width }, { from = "tokens" }) },
  loss = function(model, b)
    local y = model(nn.cast(b.x, "fp32") * (1 / 128) - 1)
    return nn.mean(y * y)
  end,
  optimizer = optim.Adam { lr = 1e-3 },
}
