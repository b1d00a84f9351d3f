-- Two small encoders and a contrastive loss over the batches of all ranks (CLIP, arXiv 2103.00020): each row is told from
-- the rows of the whole global batch, and back.
local nn, optim = require "nn", require "optim"

local o = nn.options { batch = 8, seq = 16, vocab = 256, dim = 32, lr = 3e-3, precision = nn.choice("fp32", "bf16", "fp16") }

local function Encoder()
  local m = nn.module "Encoder"
  m.embed, m.up, m.down = nn.Embedding(o.vocab, o.dim), nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)
  function m:forward(tokens) return self.down(nn.silu(self.up(self.embed(tokens)))):mean(1) end
  return m
end

local model = nn.module "TwoEncoders"
model.left, model.right, model.log_scale = Encoder(), Encoder(), nn.parameter({ 1 }, { init = nn.init.constant(2.66) })
function model:forward(a, b) return self.left(a), self.right(b), self.log_scale end
nn.fully_shard(model, { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } })

local function unit(x)
  x = nn.cast(x, "fp32")
  return x * nn.rsqrt((x * x):sum(-1, true) + 1e-6)
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b)
    local x, y, log_scale = m(b.tokens, b.targets)
    x, y = unit(x), unit(y)
    local scale = nn.exp(nn.cast(log_scale, "fp32"))
    local own = nn.rank_slice(nn.arange(nn.ranks() * o.batch))   -- where this rank's rows stand among those of all
    local function loss(from, to) return nn.cross_entropy(scale * nn.matmul(from, nn.transpose(nn.all_gather(to), 0, 1)), own) end
    return 0.5 * (loss(x, y) + loss(y, x))
  end,
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
}
