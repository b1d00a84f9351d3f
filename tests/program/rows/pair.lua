-- Rows X1 and X2: 3 x MLP(8) without bias; every weight is a pair of tensors that are both gathered and rebuilt after.
-- extension = none: the reference; short: a function that says that it wrote too little (X4). mesh = whole: sharded by nobody.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  extension = nn.choice("pair", "none", "short"), mesh = nn.choice("sharded", "whole"), precision = nn.choice("fp32", "bf16"),
  align = nn.choice("element", "row"), units = true, dim = 8, batch = 4, reshard = true, group = 0, freeze = false, accumulate = 1,
  recompute = false, offload = false, optimizer = false, moments = nn.choice("fp32", "bf16", "int8"),
}

local function MLP(dim)
  local m = nn.module "MLP"
  local init = { bias = false, init = nn.init.trunc_normal(0, 0.3) }
  m.in_proj, m.out_proj = nn.Linear(dim, 4 * dim, init), nn.Linear(4 * dim, dim, init)
  function m:forward(x) return nn.relu(self.out_proj(nn.relu(self.in_proj(x)))) end
  return m
end

local pair = o.extension ~= "none" and nn.all_gather_extension {
  source = "pair.c", cuda = "pair.cu", align = o.align,
  pre = o.extension == "short" and "pair_short" or o.precision == "bf16" and "pair_bf16" or "pair",
  post = o.precision == "bf16" and "rebuild_bf16" or "rebuild",
  wire = { { dtype = "bf16" }, { dtype = o.precision == "bf16" and "bf16" or "int32" } },
} or nil

local model = nn.sequential { MLP(o.dim), MLP(o.dim), MLP(o.dim) }
if o.freeze then nn.freeze(model[2].in_proj) end
local policy = {
  reshard_after_forward = o.group > 0 and o.group or o.reshard, all_gather = pair, mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" },
  offload = { params = o.offload, optimizer = o.optimizer }, mesh = nn.mesh { shard = o.mesh == "whole" and 1 or nil },
}
for _, mlp in ipairs(model) do
  if o.recompute then nn.checkpoint_wrapper(mlp) end
  if o.units then nn.fully_shard(mlp, policy) end
end
nn.fully_shard(model, policy)

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { o.batch, o.dim }) },
  loss = function(m, b) return nn.sum(m(b.x)) end,
  optimizer = optim.Adam { lr = 1e-2, moment_dtype = o.moments },
  accumulate = o.accumulate,
}
