-- Llama 3, 3.1 and 3.2 (Dubey et al. 2024): rotary positions, grouped queries, gated MLP. Paths are Hugging Face's.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  size = nn.choice("tiny", "1b", "3b", "8b", "70b", "405b", "3-8b", "3-70b"),    -- below
  layers = nn.optional "integer", dim = nn.optional "integer", heads = nn.optional "integer",
  kv_heads = nn.optional "integer", head_dim = nn.optional "integer",             -- head_dim: dim / heads
  ffn = nn.optional "integer", vocab = nn.optional "integer",
  tied = nn.optional "boolean", theta = 500000.0, eps = 1e-5,
  rope_scaling = nn.optional "boolean",                    -- false: none; on where the size or one of these has it:
  rope_factor = nn.optional "number", rope_low = nn.optional "number", rope_high = nn.optional "number",
  rope_original = nn.optional "integer",
  batch = 1, seq = 2048, dropout = 0.0, lr = 3e-4, clip = 1.0, accumulate = 1,
  precision = nn.choice("fp32", "bf16", "fp16"), gradients = nn.choice("fp32", "bf16", "fp16"),
  optimizer = nn.choice("adamw", "muon"), moments = nn.choice("fp32", "bf16"), recompute = nn.choice("none", "selective", "full"),
  offload = nn.choice("none", "activations", "state"),
  reshard = true, prefetch = 1, head = nn.choice("whole", "chunks"), -- chunks: all logits are never in memory at once
}
-- 1b and 3b are Llama 3.2; 8b, 70b and 405b are 3.1 (70b also 3.3); 3-8b and 3-70b are Llama 3, whose positions are not
-- scaled. context: the longest sequence that they were trained on.
local sizes = {
  tiny      = { layers = 4,   dim = 128,   heads = 4,   kv_heads = 2, ffn = 352,   vocab = 256,    tied = false },
  ["1b"]    = { layers = 16,  dim = 2048,  heads = 32,  kv_heads = 8, ffn = 8192,  vocab = 128256, tied = true,  factor = 32, context = 131072 },
  ["3b"]    = { layers = 28,  dim = 3072,  heads = 24,  kv_heads = 8, ffn = 8192,  vocab = 128256, tied = true,  factor = 32, context = 131072 },
  ["8b"]    = { layers = 32,  dim = 4096,  heads = 32,  kv_heads = 8, ffn = 14336, vocab = 128256, tied = false, factor = 8,  context = 131072 },
  ["70b"]   = { layers = 80,  dim = 8192,  heads = 64,  kv_heads = 8, ffn = 28672, vocab = 128256, tied = false, factor = 8,  context = 131072 },
  ["405b"]  = { layers = 126, dim = 16384, heads = 128, kv_heads = 8, ffn = 53248, vocab = 128256, tied = false, factor = 8,  context = 131072 },
  ["3-8b"]  = { layers = 32,  dim = 4096,  heads = 32,  kv_heads = 8, ffn = 14336, vocab = 128256, tied = false, context = 8192 },
  ["3-70b"] = { layers = 80,  dim = 8192,  heads = 64,  kv_heads = 8, ffn = 28672, vocab = 128256, tied = false, context = 8192 },
}
local c = sizes[o.size]
for _, name in ipairs { "layers", "dim", "heads", "kv_heads", "ffn", "vocab", "tied" } do
  if o[name] ~= nil then c[name] = o[name] end
end
assert(c.layers > 0, "layers must be at least 1")
assert(o.head_dim or (c.heads > 0 and c.dim % c.heads == 0), "heads do not divide dim: set head_dim, the width of a head")
local width = o.head_dim or c.dim // c.heads
local set = o.rope_scaling or o.rope_factor or o.rope_low or o.rope_high or o.rope_original
assert(not (set and o.rope_scaling == false), "rope_scaling=false takes no rope_factor, rope_low, rope_high or rope_original")
local scaling = o.rope_scaling ~= false and (set or c.factor) and {
  factor = o.rope_factor or c.factor or 8, low = o.rope_low or 1, high = o.rope_high or 4, original = o.rope_original or 8192,
} or nil
if c.context and o.seq > c.context and not set then
  print(("%s: seq = %d, but Llama of this size was trained on sequences of up to %d; rope_factor stretches positions"):format(o.size, o.seq, c.context))
end

local function Linear(inputs, outputs)
  return nn.Linear(inputs, outputs, { bias = false, init = nn.init.normal(0, 0.02) })
end

local function Attention()
  local m = nn.module "LlamaAttention"
  m.q_proj = Linear(c.dim, c.heads * width)
  m.k_proj = Linear(c.dim, c.kv_heads * width)
  m.v_proj = Linear(c.dim, c.kv_heads * width)
  m.o_proj = Linear(c.heads * width, c.dim)
  function m:forward(x)
    local batch, seq = x:size(0), x:size(1)
    local q = nn.rope(self.q_proj(x):reshape(batch, seq, c.heads, width), { theta = o.theta, scaling = scaling })
    local k = nn.rope(self.k_proj(x):reshape(batch, seq, c.kv_heads, width), { theta = o.theta, scaling = scaling })
    local v = self.v_proj(x):reshape(batch, seq, c.kv_heads, width)
    local y = nn.attention { q = q, k = k, v = v, causal = true, dropout = o.dropout }
    return self.o_proj(y:reshape(batch, seq, c.heads * width))
  end
  return m
end

local function MLP()
  local m = nn.module "LlamaMLP"
  m.gate_proj, m.up_proj, m.down_proj = Linear(c.dim, c.ffn), Linear(c.dim, c.ffn), Linear(c.ffn, c.dim)
  function m:forward(x) return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x)) end
  return m
end

local function Block()
  local m = nn.module "LlamaDecoderLayer"
  m.input_layernorm, m.self_attn = nn.RMSNorm(c.dim, { eps = o.eps }), Attention()
  m.post_attention_layernorm, m.mlp = nn.RMSNorm(c.dim, { eps = o.eps }), MLP()
  function m:forward(x)
    x = x + nn.dropout(self.self_attn(self.input_layernorm(x)), o.dropout)
    return x + nn.dropout(self.mlp(self.post_attention_layernorm(x)), o.dropout)
  end
  return m
end

local function Body()
  local m = nn.module "LlamaModel"
  m.embed_tokens = nn.Embedding(c.vocab, c.dim, { init = nn.init.normal(0, 0.02) })
  m.layers = nn.list {}
  for i = 1, c.layers do m.layers[i] = Block() end
  m.norm = nn.RMSNorm(c.dim, { eps = o.eps })
  function m:forward(tokens)
    local x = self.embed_tokens(tokens)
    for _, block in ipairs(self.layers) do x = block(x) end
    return self.norm(x)
  end
  return m
end

local function Llama3()
  local m = nn.module "LlamaForCausalLM"
  m.model = Body()
  m.lm_head = Linear(c.dim, c.vocab)
  if c.tied then m.lm_head.weight = m.model.embed_tokens.weight end
  function m:forward(tokens) return self.lm_head(self.model(tokens)) end
  return m
end

local model = Llama3()
local policy = {
  mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32", grad_dtype = o.gradients },
  reshard_after_forward = o.reshard,
  prefetch = { forward = o.prefetch, backward = o.prefetch },
  offload = { params = o.offload == "state", optimizer = o.offload == "state" },
}
for _, block in ipairs(model.model.layers) do
  if o.recompute ~= "none" or o.offload == "activations" then
    nn.checkpoint_wrapper(block, {
      recompute = o.recompute ~= "none",
      save = o.recompute == "selective" and { "attention", "matmul" } or {},
      offload = o.offload == "activations" and { "input" } or {},
    })
  end
  nn.fully_shard(block, policy)
end
if not c.tied then
  nn.fully_shard(model.model.embed_tokens, policy)
  nn.fully_shard(model.lm_head, policy)
end
policy.reshard_after_forward = nil                         -- the root stays gathered, as in PyTorch
nn.fully_shard(model, policy)

-- Muon with AdamW's rate and decay for all matrices but the embedding and the head.
local adamw, groups = { lr = o.lr, betas = { 0.9, 0.95 }, weight_decay = 0.1, moment_dtype = o.moments }, { { match = { "*norm*" }, weight_decay = 0 } }
local function optimizer()
  if o.optimizer == "adamw" then adamw.groups = groups return optim.AdamW(adamw) end
  local others = optim.AdamW(adamw)
  groups[2] = { match = { "model.embed_tokens.*", "lm_head.*" }, optimizer = others }
  return optim.Muon { lr = o.lr, adjust_lr_fn = "match_rms_adamw", moment_dtype = o.moments, groups = groups, others = others }
end

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b)
    if o.head == "chunks" then return nn.linear_cross_entropy(m.model(b.tokens), m.lm_head.weight, b.targets) end
    return nn.cross_entropy(m(b.tokens), b.targets)
  end,
  sample = {
    inputs = { tokens = nn.input("int32", { 1, o.seq }, { from = "tokens" }) },
    logits = function(m, b) return m(b.tokens) end,
  },
  optimizer = optimizer(),
  schedule = optim.cosine { warmup = 2000, total = 100000, min_ratio = 0.1 },
  clip_grad_norm = o.clip, accumulate = o.accumulate,
}
