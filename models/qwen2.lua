-- Qwen 2 and 2.5 (Yang et al. 2024): Llama's layers with biases on queries, keys and values. Paths are Hugging Face's.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  size = nn.choice("tiny", "0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b"),
  layers = nn.optional "integer", dim = nn.optional "integer", heads = nn.optional "integer",
  kv_heads = nn.optional "integer", head_dim = nn.optional "integer",             -- head_dim: dim / heads
  ffn = nn.optional "integer", vocab = nn.optional "integer",
  tied = nn.optional "boolean", theta = 1000000.0, eps = 1e-6,
  batch = 1, seq = 2048, dropout = 0.0, lr = 3e-4, clip = 1.0, accumulate = 1,
  precision = nn.choice("fp32", "bf16", "fp16"), gradients = nn.choice("fp32", "bf16", "fp16"),
  moments = nn.choice("fp32", "bf16"), recompute = nn.choice("none", "selective", "full"),
  offload = nn.choice("none", "activations", "state"),
  reshard = true, prefetch = 1,
}
local sizes = {
  tiny     = { layers = 4,  dim = 128,  heads = 4,  kv_heads = 2, ffn = 352,   vocab = 256,    tied = true },
  ["0.5b"] = { layers = 24, dim = 896,  heads = 14, kv_heads = 2, ffn = 4864,  vocab = 151936, tied = true },
  ["1.5b"] = { layers = 28, dim = 1536, heads = 12, kv_heads = 2, ffn = 8960,  vocab = 151936, tied = true },
  ["3b"]   = { layers = 36, dim = 2048, heads = 16, kv_heads = 2, ffn = 11008, vocab = 151936, tied = true },
  ["7b"]   = { layers = 28, dim = 3584, heads = 28, kv_heads = 4, ffn = 18944, vocab = 152064, tied = false },
  ["14b"]  = { layers = 48, dim = 5120, heads = 40, kv_heads = 8, ffn = 13824, vocab = 152064, tied = false },
  ["32b"]  = { layers = 64, dim = 5120, heads = 40, kv_heads = 8, ffn = 27648, vocab = 152064, tied = false },
  ["72b"]  = { layers = 80, dim = 8192, heads = 64, kv_heads = 8, ffn = 29568, vocab = 152064, tied = false },
}
local c = sizes[o.size]
for _, name in ipairs { "layers", "dim", "heads", "kv_heads", "ffn", "vocab", "tied" } do
  if o[name] ~= nil then c[name] = o[name] end
end
assert(c.layers > 0, "layers must be at least 1")
assert(o.head_dim or (c.heads > 0 and c.dim % c.heads == 0), "heads do not divide dim: set head_dim, the width of a head")
local width = o.head_dim or c.dim // c.heads

local function Linear(inputs, outputs, bias)
  return nn.Linear(inputs, outputs, { bias = bias or false, init = nn.init.normal(0, 0.02) })
end

local function Attention()
  local m = nn.module "Qwen2Attention"
  m.q_proj = Linear(c.dim, c.heads * width, true)
  m.k_proj = Linear(c.dim, c.kv_heads * width, true)
  m.v_proj = Linear(c.dim, c.kv_heads * width, true)
  m.o_proj = Linear(c.heads * width, c.dim)
  function m:forward(x)
    local batch, seq = x:size(0), x:size(1)
    local q = nn.rope(self.q_proj(x):reshape(batch, seq, c.heads, width), { theta = o.theta })
    local k = nn.rope(self.k_proj(x):reshape(batch, seq, c.kv_heads, width), { theta = o.theta })
    local v = self.v_proj(x):reshape(batch, seq, c.kv_heads, width)
    local y = nn.attention { q = q, k = k, v = v, causal = true, dropout = o.dropout }
    return self.o_proj(y:reshape(batch, seq, c.heads * width))
  end
  return m
end

local function MLP()
  local m = nn.module "Qwen2MLP"
  m.gate_proj, m.up_proj, m.down_proj = Linear(c.dim, c.ffn), Linear(c.dim, c.ffn), Linear(c.ffn, c.dim)
  function m:forward(x) return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x)) end
  return m
end

local function Block()
  local m = nn.module "Qwen2DecoderLayer"
  m.input_layernorm, m.self_attn = nn.RMSNorm(c.dim, { eps = o.eps }), Attention()
  m.post_attention_layernorm, m.mlp = nn.RMSNorm(c.dim, { eps = o.eps }), MLP()
  function m:forward(x)
    x = x + nn.dropout(self.self_attn(self.input_layernorm(x)), o.dropout)
    return x + nn.dropout(self.mlp(self.post_attention_layernorm(x)), o.dropout)
  end
  return m
end

local function Body()
  local m = nn.module "Qwen2Model"
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

local function Qwen2()
  local m = nn.module "Qwen2ForCausalLM"
  m.model = Body()
  m.lm_head = Linear(c.dim, c.vocab)
  if c.tied then m.lm_head.weight = m.model.embed_tokens.weight end
  function m:forward(tokens) return self.lm_head(self.model(tokens)) end
  return m
end

local model = Qwen2()
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
    groups = { { match = { "*.bias", "*norm*" }, weight_decay = 0 } },
  },
  schedule = optim.cosine { warmup = 2000, total = 100000, min_ratio = 0.1 },
  clip_grad_norm = o.clip, accumulate = o.accumulate,
}
