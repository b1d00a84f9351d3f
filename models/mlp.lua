-- A window of bytes in, the next byte out: the smallest model that learns something from text.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  vocab = 256, window = 4, dim = 16, hidden = 64, batch = 8, seq = 32, lr = 3e-3,
  precision = nn.choice("fp32", "bf16", "fp16"),
}

local function MLP()
  local m = nn.module "MLP"
  m.embed = nn.Embedding(o.vocab, o.dim)
  m.up    = nn.Linear(o.window * o.dim, o.hidden)
  m.down  = nn.Linear(o.hidden, o.vocab)

  -- Position t sees the bytes t - window + 1 ... t; zeros stand before the first one.
  function m:forward(tokens)
    local batch, seq, seen = tokens:size(0), tokens:size(1), {}
    for back = 0, o.window - 1 do
      local earlier = tokens:slice(1, 0, seq - back)
      if back > 0 then earlier = nn.concat({ nn.zeros({ batch, back }, "int32"), earlier }, 1) end
      seen[back + 1] = earlier
    end
    local x = self.embed(nn.stack(seen, -1)):reshape(batch, seq, -1)
    return self.down(nn.relu(self.up(x)))
  end
  return m
end

local model = MLP()
nn.fully_shard(model, { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } })

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  sample = {
    inputs = { tokens = nn.input("int32", { 1, o.seq }, { from = "tokens" }) },
    logits = function(m, b) return m(b.tokens) end,
  },
  optimizer = optim.AdamW { lr = o.lr, weight_decay = 0 },
  schedule = optim.cosine { warmup = 20, total = 1000, min_ratio = 0.1 },
  clip_grad_norm = 1.0,
}
