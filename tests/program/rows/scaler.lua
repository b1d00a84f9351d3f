-- Rows G1, G3, G4: a small net in fp16 under optim.GradScaler. Its batch holds `gain`, a factor on the loss of each sample: a
-- large one on one rank makes an infinite gradient there and nowhere else.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  dim = 24, batch = 4, layers = 2, init_scale = 65536.0, growth_interval = 2000, growth_factor = 2.0, backoff_factor = 0.5,
  scaler = true, clip = nn.optional "number", optimizer = nn.choice("adamw", "adam", "sgd", "momentum"), accumulate = 1,
  param_dtype = nn.choice("fp16", "fp32", "bf16"), reduce_dtype = nn.choice("fp16", "fp32"),
  grad_dtype = nn.optional "string",
  params = false, grads = false, state = false, replicate = nn.optional "number", reshard = true,
  explicit = nn.choice("none", "loss", "outputs"), without_fp16 = false, moments = nn.choice("fp32", "bf16", "int8"),
}

local function Block()
  local m = nn.module "Block"
  m.norm, m.up, m.down = nn.LayerNorm(o.dim), nn.Linear(o.dim, 3 * o.dim), nn.Linear(3 * o.dim, o.dim)
  function m:forward(x) return x + self.down(nn.relu(self.up(self.norm(x)))) end
  return m
end

local m = nn.module "Net"
m.inner, m.head, m.blocks = nn.Linear(o.dim, o.dim), nn.Linear(o.dim, 4), nn.list {}
for i = 1, o.layers do m.blocks[i] = Block() end
function m:forward(x)
  x = self.inner(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(x)
end

local policy = {
  mesh = nn.mesh { replicate = o.replicate }, reshard_after_forward = o.reshard,
  mp_policy = { param_dtype = o.param_dtype, reduce_dtype = o.reduce_dtype, grad_dtype = o.grad_dtype },
  offload = { params = o.params, grads = o.grads, optimizer = o.state },
}
for _, block in ipairs(m.blocks) do nn.fully_shard(block, policy) end
nn.fully_shard(m, policy)

local scaler = o.scaler and optim.GradScaler {
  init_scale = o.init_scale, growth_interval = o.growth_interval, growth_factor = o.growth_factor,
  backoff_factor = o.backoff_factor, without_fp16 = o.without_fp16,
} or nil

-- The sum of squares of every sample's outputs, each times its gain.
local function loss(y, gain) return nn.mean(nn.sum(nn.cast(y, "fp32") * nn.cast(y, "fp32"), 1) * gain) end

local kinds = { adamw = optim.AdamW, adam = optim.Adam, sgd = optim.SGD, momentum = optim.SGD }
return nn.training {
  model = m,
  batch = { x = nn.input("fp32", { o.batch, o.dim }), gain = nn.input("fp32", { o.batch }) },
  loss = function(m, b)
    local y = m(b.x)
    if o.explicit == "loss" then return scaler:scale(loss(y, b.gain)) end
    if o.explicit == "none" then return loss(y, b.gain) end
    -- outputs of different structure: a tensor, a list, a table in a table
    local a, list, nested = y:slice(0, 0, 1), { y:slice(0, 1, 2), y:slice(0, 2, 3) }, { deep = { last = y:slice(0, 3, 4) } }
    local all = scaler:scale { a = a, list = list, nested = nested }
    nn.log_metric("a", nn.sum(nn.cast(a, "fp32")))
    nn.log_metric("a_scaled", nn.sum(nn.cast(all.a, "fp32")))
    nn.log_metric("list", nn.sum(nn.cast(list[2], "fp32")))
    nn.log_metric("list_scaled", nn.sum(nn.cast(all.list[2], "fp32")))
    nn.log_metric("nested", nn.sum(nn.cast(nested.deep.last, "fp32")))
    nn.log_metric("nested_scaled", nn.sum(nn.cast(all.nested.deep.last, "fp32")))
    return nn.mean(nn.cast(nn.concat({ all.a, all.list[1], all.list[2], all.nested.deep.last }, 0), "fp32"))
  end,
  optimizer = kinds[o.optimizer] {
    lr = 1e-2, momentum = o.optimizer == "momentum" and 0.9 or nil, weight_decay = 0.01,
    moment_dtype = o.moments ~= "fp32" and o.moments or nil,
  },
  clip_grad_norm = o.clip or 0, accumulate = o.accumulate, grad_scaler = scaler,
}
