-- An encoder-decoder transformer (Vaswani et al. 2017) with normalisation before each part; paths are those of (m)BART.
-- As it stands it reads `seq` tokens and continues them; for pairs of texts, feed records (--data -) to its three inputs.
local nn, optim = require "nn", require "optim"

local o = nn.options {
  layers = 6, dim = 512, heads = 8, ffn = nn.optional "integer", vocab = 32768, batch = 8, seq = 128,
  positions = nn.optional "integer", eps = 1e-5,          -- positions: seq; that of weights, where it is longer
  dropout = 0.0, lr = 1e-3, clip = 1.0, accumulate = 1,
  precision = nn.choice("fp32", "bf16", "fp16"), gradients = nn.choice("fp32", "bf16", "fp16"),
  matmul = nn.choice("plain", "fp8"), matmul_wide = 0,    -- fp8: linears of layers, but of so many at either end
  recipe = nn.choice("tensor", "delayed", "block"),       -- of fp8: scales of tensors, by steps before, of blocks
  moments = nn.choice("fp32", "bf16", "int8"), recompute = nn.choice("none", "selective", "full"),
  offload = nn.choice("none", "activations", "state"),
  reshard = true, prefetch = 1,
}
local ffn, positions = o.ffn or 4 * o.dim, o.positions or o.seq
assert(o.layers > 0 and o.heads > 0 and o.dim % o.heads == 0, "layers must be at least 1, and heads must divide dim")
assert(o.seq <= positions, "seq is longer than the learned positions: set a shorter seq, or more positions")

local function Linear(inputs, outputs)
  return nn.Linear(inputs, outputs, { init = nn.init.normal(0, 0.02), bias_init = nn.init.zeros() })
end

-- Queries from x, keys and values from `source`.
local function Attention(causal)
  local m = nn.module "Attention"
  m.q_proj, m.k_proj, m.v_proj, m.out_proj = Linear(o.dim, o.dim), Linear(o.dim, o.dim), Linear(o.dim, o.dim), Linear(o.dim, o.dim)
  function m:forward(x, source)
    local batch, seq, width = x:size(0), x:size(1), o.dim // o.heads
    local q = self.q_proj(x):reshape(batch, seq, o.heads, width)
    local k = self.k_proj(source):reshape(batch, source:size(1), o.heads, width)
    local v = self.v_proj(source):reshape(batch, source:size(1), o.heads, width)
    return self.out_proj(nn.attention { q = q, k = k, v = v, causal = causal, dropout = o.dropout }:reshape(batch, seq, o.dim))
  end
  return m
end

local function EncoderLayer()
  local m = nn.module "EncoderLayer"
  m.self_attn_layer_norm, m.self_attn = nn.LayerNorm(o.dim, { eps = o.eps }), Attention(false)
  m.final_layer_norm, m.fc1, m.fc2 = nn.LayerNorm(o.dim, { eps = o.eps }), Linear(o.dim, ffn), Linear(ffn, o.dim)
  function m:forward(x)
    local y = self.self_attn_layer_norm(x)
    x = x + nn.dropout(self.self_attn(y, y), o.dropout)
    return x + nn.dropout(self.fc2(nn.relu(self.fc1(self.final_layer_norm(x)))), o.dropout)
  end
  return m
end

local function DecoderLayer()
  local m = nn.module "DecoderLayer"
  m.self_attn_layer_norm, m.self_attn = nn.LayerNorm(o.dim, { eps = o.eps }), Attention(true)
  m.encoder_attn_layer_norm, m.encoder_attn = nn.LayerNorm(o.dim, { eps = o.eps }), Attention(false)
  m.final_layer_norm, m.fc1, m.fc2 = nn.LayerNorm(o.dim, { eps = o.eps }), Linear(o.dim, ffn), Linear(ffn, o.dim)
  function m:forward(x, memory)
    local y = self.self_attn_layer_norm(x)
    x = x + nn.dropout(self.self_attn(y, y), o.dropout)
    x = x + nn.dropout(self.encoder_attn(self.encoder_attn_layer_norm(x), memory), o.dropout)
    return x + nn.dropout(self.fc2(nn.relu(self.fc1(self.final_layer_norm(x)))), o.dropout)
  end
  return m
end

-- Encoder and decoder: embedding (one table for both), positions, layers, a last norm.
local function Stack(kind, shared, Layer)
  local m = nn.module(kind)
  m.embed_tokens = shared
  m.embed_positions = nn.Embedding(positions, o.dim, { init = nn.init.normal(0, 0.02) })
  m.layers = nn.list {}
  for i = 1, o.layers do m.layers[i] = Layer() end
  m.layer_norm = nn.LayerNorm(o.dim, { eps = o.eps })
  function m:forward(tokens, memory)
    local x = self.embed_tokens(tokens) + self.embed_positions(nn.arange(tokens:size(1)))
    x = nn.dropout(x, o.dropout)
    for _, layer in ipairs(self.layers) do x = layer(x, memory) end
    return self.layer_norm(x)
  end
  return m
end

local function Transformer()
  local m = nn.module "Transformer"
  m.shared = nn.Embedding(o.vocab, o.dim, { init = nn.init.normal(0, 0.02) })
  m.encoder = Stack("Encoder", m.shared, EncoderLayer)
  m.decoder = Stack("Decoder", m.shared, DecoderLayer)
  m.lm_head = nn.Linear(o.dim, o.vocab, { bias = false })
  m.lm_head.weight = m.shared.weight
  function m:forward(source, target)
    return self.lm_head(self.decoder(target, self.encoder(source)))
  end
  return m
end

local model = Transformer()
local policy = {
  mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32", grad_dtype = o.gradients, recipe = o.recipe },
  reshard_after_forward = o.reshard,
  prefetch = { forward = o.prefetch, backward = o.prefetch },
  offload = { params = o.offload == "state", optimizer = o.offload == "state" },
}
for _, stack in ipairs { model.encoder, model.decoder } do
  for i, layer in ipairs(stack.layers) do
    policy.mp_policy.matmul_dtype = i > o.matmul_wide and i <= #stack.layers - o.matmul_wide and o.matmul or nil
    if o.recompute ~= "none" or o.offload == "activations" then
      nn.checkpoint_wrapper(layer, {
        recompute = o.recompute ~= "none",
        save = o.recompute == "selective" and { "attention", "matmul" } or {},
        offload = o.offload == "activations" and { "input" } or {},
      })
    end
    nn.fully_shard(layer, policy)
  end
end
policy.mp_policy.matmul_dtype = nil                        -- the head multiplies as the precision says
policy.reshard_after_forward = nil                         -- the root stays gathered, as in PyTorch
nn.fully_shard(model, policy)

return nn.training {
  model = model,
  batch = {
    source    = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    target_in = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = o.seq }),
    targets   = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = o.seq + 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.source, b.target_in), b.targets) end,
  optimizer = optim.AdamW {
    lr = o.lr, betas = { 0.9, 0.98 }, eps = 1e-9, weight_decay = 0.01, moment_dtype = o.moments,
    groups = { { match = { "*.bias", "*norm*" }, weight_decay = 0 } },
  },
  schedule = optim.linear { warmup = 4000, total = 100000, min_ratio = 0.0 },
  clip_grad_norm = o.clip, accumulate = o.accumulate,
}
