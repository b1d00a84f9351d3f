-- M1 and M2: blocks of two linears with ReLU, each a unit, and the root; the loss is the sum of the outputs of the first
-- `through` blocks. M1: 4 blocks, 8192 rows, fp16 parameters reduced in fp32. M2: 3 blocks, 8 rows, through the first.
local nn, optim = require "nn", require "optim"
local o = nn.options {
  dim = 2048, blocks = 4, through = 4, batch = 8192,
  precision = nn.choice("fp16", "bf16", "fp32"), reduce = nn.choice("fp32", "fp16", "bf16"), reshard = true, offload = false,
  recompute = nn.choice("none", "full", "selective"),
  root = true, shard = 0, lr = 1e-2,
}

local function MLP()
  local m = nn.module "MLP"
  m.in_proj, m.out_proj = nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)
  function m:forward(x) return nn.relu(self.out_proj(nn.relu(self.in_proj(x)))) end
  return m
end

local model = nn.module "Stack"
model.blocks = nn.list {}
for i = 1, o.blocks do model.blocks[i] = MLP() end
function model:forward(x)
  for i = 1, o.through do x = self.blocks[i](x) end
  return x
end

local policy = {
  reshard_after_forward = o.reshard,
  mp_policy = o.precision ~= "fp32" and { param_dtype = o.precision, reduce_dtype = o.reduce } or nil,
  offload = { params = o.offload, grads = o.offload, optimizer = o.offload and "host" or false },
  mesh = o.shard > 0 and nn.mesh { shard = o.shard } or nil,
}
for _, block in ipairs(model.blocks) do
  if o.recompute ~= "none" then nn.checkpoint_wrapper(block, { save = o.recompute == "selective" and { "matmul" } or {} }) end
  nn.fully_shard(block, policy)
end
if o.root then nn.fully_shard(model, policy) end

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { o.batch, o.dim }) },
  loss = function(m, b) return nn.sum(m(b.x)) end,
  optimizer = optim.Adam { lr = o.lr },
}
