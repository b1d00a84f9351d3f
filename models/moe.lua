-- A decoder whose blocks end in routed experts, as Mixtral, Qwen3-MoE, OLMoE or DeepSeek-V3 have them (nn.MoE).
local nn, optim = require "nn", require "optim"

local o = nn.options {
  layers = 4, dim = 128, heads = 4, kv_heads = 2, head_dim = 32, vocab = 256, theta = 500000.0, eps = 1e-6,
  experts = 8, top = 2, ffn = 128,                        -- experts in a layer, of which a token goes to `top`; their width
  score = nn.choice("softmax", "sigmoid", "chosen"), normalize = true, scale = 1.0,
  shared = 0,                                              -- width of an expert that all tokens go to; 0: none
  capacity = 0.0,                                          -- an expert takes at most so many equal shares; 0: all tokens
  expert = 1,                                              -- experts are spread over so many ranks, whole; 1: all on all
  parts = 1,                                               -- of the batch: attention of one while tokens of another travel (balance: of each)
  pieces = 1,                                              -- a layer's experts are so many units, gathered in turn
  balance = 0.01,                                          -- of the loss that spreads tokens evenly
  balance_rate = 0.0,                                      -- what corrections change by a step, which spread them without a loss; 0: none
  z_loss = 0.0,                                            -- of the loss that keeps routers' logits small
  batch = 8, seq = 128, accumulate = 1, lr = 3e-4, clip = 1.0, moments = nn.choice("fp32", "bf16", "int8"),
  precision = nn.choice("fp32", "bf16", "fp16"), recompute = nn.choice("none", "experts", "full"),
  gradients = nn.choice("fp32", "bf16"),                    -- what they are made in; sums are in fp32
  matmul = nn.choice("plain", "fp8"), matmul_wide = 0,     -- fp8: linears of blocks, but of so many at either end
  experts_matmul = nn.choice("plain", "fp8"),              -- of routed experts
  recipe = nn.choice("tensor", "delayed", "block"),        -- of fp8: scales of tensors, by steps before, of blocks
}

assert(o.parts == 1 or o.balance_rate == 0, "balance_rate changes corrections once a step: set parts=1")

local function Linear(inputs, outputs) return nn.Linear(inputs, outputs, { bias = false, init = nn.init.normal(0, 0.02) }) end

local function Attention()
  local m = nn.module "Attention"
  m.q_proj, m.o_proj = Linear(o.dim, o.heads * o.head_dim), Linear(o.heads * o.head_dim, o.dim)
  m.k_proj, m.v_proj = Linear(o.dim, o.kv_heads * o.head_dim), Linear(o.dim, o.kv_heads * o.head_dim)
  function m:forward(x)
    local function heads(y, n) return y:reshape(x:size(0), x:size(1), n, o.head_dim) end
    local q, k = nn.rope(heads(self.q_proj(x), o.heads), { theta = o.theta }), nn.rope(heads(self.k_proj(x), o.kv_heads), { theta = o.theta })
    local y = nn.attention { q = q, k = k, v = heads(self.v_proj(x), o.kv_heads), causal = true }
    return self.o_proj(y:reshape(x:size(0), x:size(1), o.heads * o.head_dim))
  end
  return m
end

local function Block()
  local m = nn.module "Block"
  m.input_layernorm, m.self_attn = nn.RMSNorm(o.dim, { eps = o.eps }), Attention()
  m.post_attention_layernorm = nn.RMSNorm(o.dim, { eps = o.eps })
  m.mlp = nn.MoE(o.dim, o.ffn, {
    experts = o.experts, top = o.top, score = o.score, normalize = o.normalize, scale = o.scale, init = nn.init.normal(0, 0.02),
    shared = o.shared > 0 and o.shared or nil, capacity = o.capacity > 0 and o.capacity or nil, pieces = o.pieces,
    correction = o.balance_rate > 0, balance_rate = o.balance_rate > 0 and o.balance_rate or nil,
  })
  function m:forward(...)                                  -- parts of the batch
    local x, sent, balance, z = { ... }, {}, 0, nil
    for i, part in ipairs(x) do
      x[i] = part + self.self_attn(self.input_layernorm(part))
      sent[i] = self.mlp(self.post_attention_layernorm(x[i]), true)
    end
    for i, part in ipairs(x) do
      local y, scores, counts, logits = self.mlp(nil, sent[i])
      x[i], balance = part + y, balance + nn.balance_loss(scores, counts)
      if o.z_loss > 0 then z = (z or 0) + nn.router_z_loss(logits) end
    end
    return balance / #x, z and z / #x, table.unpack(x)
  end
  return m
end

local model = nn.module "Decoder"
model.embed_tokens, model.lm_head = nn.Embedding(o.vocab, o.dim, { init = nn.init.normal(0, 0.02) }), Linear(o.dim, o.vocab)
model.layers, model.norm = nn.list {}, nn.RMSNorm(o.dim, { eps = o.eps })
for i = 1, o.layers do model.layers[i] = Block() end
function model:forward(tokens)
  local x, balance, z_loss = { nn.chunk(self.embed_tokens(tokens), o.parts, 0) }, 0, 0
  for _, block in ipairs(self.layers) do
    local made = { block(table.unpack(x)) }
    balance = balance + made[1]
    if made[2] then z_loss = z_loss + made[2] end
    x = { table.unpack(made, 3, 2 + o.parts) }
  end
  return self.lm_head(self.norm(o.parts > 1 and nn.concat(x, 0) or x[1])), balance / o.layers, z_loss / o.layers
end

local policy = { mesh = nn.mesh { expert = o.expert }, mp_policy = { param_dtype = o.precision, grad_dtype = o.gradients, reduce_dtype = "fp32", recipe = o.recipe } }
for i, block in ipairs(model.layers) do
  local narrow = i > o.matmul_wide and i <= o.layers - o.matmul_wide
  policy.mp_policy.matmul_dtype, policy.mp_policy.matmul_expert_dtype = narrow and o.matmul or nil, narrow and o.experts_matmul or nil
  if o.recompute == "full" then nn.checkpoint_wrapper(block) end
  for _, experts in ipairs(o.pieces > 1 and block.mlp.experts or { block.mlp.experts }) do
    if o.recompute == "experts" then nn.checkpoint_wrapper(experts) end
    if o.pieces > 1 then nn.fully_shard(experts, policy) end
  end
  nn.fully_shard(block, policy)
end
policy.mp_policy.matmul_dtype = nil                        -- the head multiplies as the precision says
nn.fully_shard(model, policy)

return nn.training {
  model = model,
  batch = {
    tokens = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b)
    local logits, balance, z_loss = m(b.tokens)
    local loss = nn.cross_entropy(logits, b.targets)
    nn.log_metric("balance", balance)
    loss = loss + o.balance * balance
    return o.z_loss > 0 and loss + o.z_loss * z_loss or loss
  end,
  optimizer = optim.AdamW { lr = o.lr, moment_dtype = o.moments },
  clip_grad_norm = o.clip > 0 and o.clip or nil, accumulate = o.accumulate,
}
