-- GPT-2 (Radford et al. 2019). Paths and layouts are those of the Hugging Face weights, which store [in,out] matrices.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  size = nn.choice("124m", "350m", "774m", "1558m"),      -- layers, dim and heads, where these are not set
  layers = nn.optional "integer", dim = nn.optional "integer", heads = nn.optional "integer",
  vocab = 50304, positions = nn.optional "integer",       -- published weights: 50257, and 1024 also where seq is shorter
  eps = 1e-5, batch = 8, seq = 1024, dropout = 0.0, lr = 6e-4, clip = 1.0, accumulate = 1,
  precision = nn.choice("fp32", "bf16", "fp16"), gradients = nn.choice("fp32", "bf16", "fp16"),
  matmul = nn.choice("plain", "fp8"), matmul_wide = 0,    -- fp8: linears of blocks, but of so many at either end
  recipe = nn.choice("tensor", "delayed", "block"),       -- of fp8: scales of tensors, by steps before, of blocks
  moments = nn.choice("fp32", "bf16", "int8"), recompute = nn.choice("none", "selective", "full"),
  offload = nn.choice("none", "activations", "state"),
  reshard = true, prefetch = 1,
}
local preset = ({
  ["124m"] = { 12, 768, 12 }, ["350m"] = { 24, 1024, 16 }, ["774m"] = { 36, 1280, 20 }, ["1558m"] = { 48, 1600, 25 },
})[o.size]
local layers, dim, heads = o.layers or preset[1], o.dim or preset[2], o.heads or preset[3]
local positions = o.positions or o.seq
assert(layers > 0 and heads > 0 and dim % heads == 0, "layers must be at least 1, and heads must divide dim")
assert(o.seq <= positions, "seq is longer than the learned positions: set a shorter seq, or more positions, which published weights do not have")

local function Conv1D(inputs, outputs, std)
  local m = nn.module "Conv1D"
  m.weight = nn.parameter({ inputs, outputs }, { init = nn.init.normal(0, std or 0.02) })
  m.bias   = nn.parameter { outputs }
  function m:forward(x) return nn.addmm(self.bias, x, self.weight) end
  return m
end

local residual_std = 0.02 / math.sqrt(2 * layers)

local function Attention()
  local m = nn.module "Attention"
  m.c_attn = Conv1D(dim, 3 * dim)
  m.c_proj = Conv1D(dim, dim, residual_std)
  function m:forward(x)
    local batch, seq = x:size(0), x:size(1)
    local q, k, v = self.c_attn(x):reshape(batch, seq, 3 * heads, dim // heads):chunk(3, 2)
    local y = nn.attention { q = q, k = k, v = v, causal = true, dropout = o.dropout }
    return nn.dropout(self.c_proj(y:reshape(batch, seq, dim)), o.dropout)
  end
  return m
end

local function MLP()
  local m = nn.module "MLP"
  m.c_fc   = Conv1D(dim, 4 * dim)
  m.c_proj = Conv1D(4 * dim, dim, residual_std)
  function m:forward(x) return nn.dropout(self.c_proj(nn.gelu(self.c_fc(x), "tanh")), o.dropout) end
  return m
end

local function Block()
  local m = nn.module "Block"
  m.ln_1, m.attn = nn.LayerNorm(dim, { eps = o.eps }), Attention()
  m.ln_2, m.mlp  = nn.LayerNorm(dim, { eps = o.eps }), MLP()
  function m:forward(x)
    x = x + self.attn(self.ln_1(x))
    return x + self.mlp(self.ln_2(x))
  end
  return m
end

local function GPT2()
  local m = nn.module "GPT2"
  m.wte = nn.Embedding(o.vocab, dim, { init = nn.init.normal(0, 0.02) })
  m.wpe = nn.Embedding(positions, dim, { init = nn.init.normal(0, 0.01) })
  m.h = nn.list {}
  for i = 1, layers do m.h[i] = Block() end
  m.ln_f = nn.LayerNorm(dim, { eps = o.eps })
  m.lm_head = nn.Linear(dim, o.vocab, { bias = false })
  m.lm_head.weight = m.wte.weight                          -- one parameter, tied
  function m:forward(tokens)
    local x = self.wte(tokens) + self.wpe(nn.arange(tokens:size(1)))
    x = nn.dropout(x, o.dropout)
    for _, block in ipairs(self.h) do x = block(x) end
    return self.lm_head(self.ln_f(x))
  end
  return m
end

local model = GPT2()
local policy = {
  mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32", grad_dtype = o.gradients, recipe = o.recipe },
  reshard_after_forward = o.reshard,
  prefetch = { forward = o.prefetch, backward = o.prefetch },
  offload = { params = o.offload == "state", optimizer = o.offload == "state" },
}
for i, block in ipairs(model.h) do
  policy.mp_policy.matmul_dtype = i > o.matmul_wide and i <= #model.h - o.matmul_wide and o.matmul or nil
  if o.recompute ~= "none" or o.offload == "activations" then
    nn.checkpoint_wrapper(block, {
      recompute = o.recompute ~= "none",
      save = o.recompute == "selective" and { "attention", "matmul" } or {},
      offload = o.offload == "activations" and { "input" } or {},
    })
  end
  nn.fully_shard(block, policy)
end
policy.mp_policy.matmul_dtype = nil                        -- the head multiplies as the precision says
policy.reshard_after_forward = nil                         -- the root stays gathered, as in PyTorch
nn.fully_shard(model, policy)

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
  optimizer = optim.AdamW {
    lr = o.lr, betas = { 0.9, 0.95 }, weight_decay = 0.1, moment_dtype = o.moments,
    groups = { { match = { "*.bias", "*ln_*" }, weight_decay = 0 } },
  },
  schedule = optim.cosine { warmup = 700, total = 20000, min_ratio = 0.1 },
  clip_grad_norm = o.clip, accumulate = o.accumulate,
}
