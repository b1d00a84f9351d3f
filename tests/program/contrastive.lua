-- A contrastive loss over the batches of all ranks (CLIP, arXiv 2103.00020): every row is told from the rows of all
-- ranks. The exchange is one of several that mean the same, so that each collective is seen in a loss.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  batch = 4, seq = 8, vocab = 256, dim = 16, lr = 1e-2, temperature = 0.5,
  way = nn.choice("gather", "sum", "scatter", "exchange", "columns", "local"), axis = nn.choice("world", "shard", "replicate"),
  precision = nn.choice("fp32", "bf16", "fp64"), replicate = 0, checkpoint = false,
}
local stored = { dtype = o.precision == "fp64" and "fp64" or "fp32" }

local function Tower()
  local m = nn.module "Tower"
  m.embed = nn.Embedding(o.vocab, o.dim, stored)
  m.up = nn.Linear(o.dim, 3 * o.dim, stored)
  m.down = nn.Linear(3 * o.dim, o.dim, stored)
  function m:forward(tokens)
    local x = self.down(nn.silu(self.up(self.embed(tokens)))):mean(1)
    return x * nn.rsqrt((x * x):sum(-1, true) + 1e-6)
  end
  return m
end

local model = nn.module "TwoTowers"
model.left, model.right = Tower(), Tower()
function model:forward(a, b) return self.left(a), self.right(b) end

local mesh = o.replicate > 0 and nn.mesh { replicate = o.replicate } or nil
nn.fully_shard(model, { mesh = mesh, mp_policy = o.precision == "bf16" and { param_dtype = "bf16", reduce_dtype = "fp32" } or nil })

-- All ranks' x, by other collectives than all_gather.
local function of_all(x)
  local n = nn.ranks(o.axis)
  if o.way == "gather" then return nn.all_gather(x, o.axis) end
  if o.way == "local" then return x end
  if o.way == "columns" then return nn.all_gather(nn.all_to_all(x, o.axis, 1, 0), o.axis, 1) end -- some columns of all rows, as Ulysses
  local me = nn.rank_slice(nn.arange(n), o.axis)                                        -- [1]
  local at = nn.cast(nn.eq(nn.reshape(nn.arange(n), n, 1, 1), nn.reshape(me, 1, 1, 1)), x) -- 1 at this rank's place
  local placed = at * nn.unsqueeze(x, 0)                                                -- [n, batch, dim]
  if o.way == "sum" then return nn.reshape(nn.all_reduce(placed, o.axis), n * o.batch, -1) end
  if o.way == "exchange" then
    return nn.reshape(nn.all_to_all(nn.expand(nn.unsqueeze(x, 0), n, -1, -1), o.axis), n * o.batch, -1)
  end
  -- pieces along dim of the sum, put together again
  return nn.reshape(nn.all_gather(nn.reduce_scatter(placed, o.axis, 2), o.axis, 2), n * o.batch, -1)
end

local function wide(x) return nn.cast(x, o.precision == "fp64" and "fp64" or "fp32") end

local function likeness(x, y)
  return nn.matmul(wide(x), nn.transpose(wide(of_all(y)), 0, 1)) / o.temperature
end

local function loss(m, b)
  local x, y = m(b.tokens, b.targets)
  local logits = o.checkpoint and nn.checkpoint(likeness, x, y) or likeness(x, y)
  local own = o.way == "local" and nn.arange(o.batch) or nn.rank_slice(nn.arange(nn.ranks(o.axis) * o.batch), o.axis)
  local right = nn.cast(nn.eq(nn.unsqueeze(own, 1), nn.arange(logits:size(1))), logits)
  return nn.mean(nn.log(nn.exp(logits):sum(-1)) - (logits * right):sum(-1))
end

return nn.training {
  model = model,
  batch = {
    tokens = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = loss,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
}
