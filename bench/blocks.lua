-- The dense parts of Gemma 2 and 3, Mistral and GPT-OSS (one MLP in place of its experts), with their windows, caps,
-- sinks and scalings of positions; variant=false: without these. For what attention's variants cost.
local nn, optim = require "nn", require "optim"
local huge = math.huge
local o = nn.options { model = nn.choice("gemma2-9b", "gemma3-12b", "mistral-7b", "gpt-oss-20b"), variant = true, layers = nn.optional "integer",
                       batch = 1, seq = 8192, recompute = true }

-- every: one layer of so many has no window. theta: of layers with a window, and without.
local models = {
  ["gemma2-9b"]   = { layers = 42, dim = 3584, heads = 16, kv_heads = 8, width = 256, ffn = 14336, vocab = 256000, window = 4096, every = 2, softcap = 50,
                      logits_cap = 30, theta = { 1e4, 1e4 } },
  ["gemma3-12b"]  = { layers = 48, dim = 3840, heads = 16, kv_heads = 8, width = 256, ffn = 15360, vocab = 262208, window = 1024, every = 6, qk_norm = true,
                      theta = { 1e4, 1e6 }, scaling = { type = "linear", factor = 8 } },
  ["mistral-7b"]  = { layers = 32, dim = 4096, heads = 32, kv_heads = 8, width = 128, ffn = 14336, vocab = 32000, window = 4096, every = huge, theta = { 1e4, 1e4 } },
  ["gpt-oss-20b"] = { layers = 24, dim = 2880, heads = 64, kv_heads = 8, width = 64, ffn = 11520, vocab = 201088, window = 128, every = 2, sinks = true,
                      theta = { 150000, 150000 }, scaling = { type = "yarn", factor = 32, original = 4096, truncate = false } },
}
local c = models[o.model]
c.layers = o.layers or c.layers

local function Linear(inputs, outputs) return nn.Linear(inputs, outputs, { bias = false, init = nn.init.normal(0, 0.02) }) end

local function Block(number)
  local m = nn.module "Block"
  local short = o.variant and (number + 1) % c.every ~= 0
  m.norm, m.mlp_norm = nn.RMSNorm(c.dim), nn.RMSNorm(c.dim)
  m.q, m.k = Linear(c.dim, c.heads * c.width), Linear(c.dim, c.kv_heads * c.width)
  m.v, m.o = Linear(c.dim, c.kv_heads * c.width), Linear(c.heads * c.width, c.dim)
  m.gate, m.up, m.down = Linear(c.dim, c.ffn), Linear(c.dim, c.ffn), Linear(c.ffn, c.dim)
  if c.qk_norm then m.q_norm, m.k_norm = nn.RMSNorm(c.width), nn.RMSNorm(c.width) end
  m.sinks = o.variant and c.sinks and nn.parameter { c.heads } or false
  function m:forward(x)
    local function heads(y, n) return nn.reshape(y, o.batch, o.seq, n, c.width) end
    local rope = { theta = short and c.theta[1] or c.theta[2], scaling = o.variant and not (short and c.qk_norm) and c.scaling or nil }
    local h = self.norm(x)
    local q, k, v = heads(self.q(h), c.heads), heads(self.k(h), c.kv_heads), heads(self.v(h), c.kv_heads)
    if c.qk_norm then q, k = self.q_norm(q), self.k_norm(k) end
    local y = nn.attention { q = nn.rope(q, rope), k = nn.rope(k, rope), v = v, causal = true, window = short and { c.window - 1, huge } or nil,
                             softcap = o.variant and c.softcap or nil, sinks = self.sinks or nil }
    x = x + self.o(nn.reshape(y, o.batch, o.seq, c.heads * c.width))
    h = self.mlp_norm(x)
    return x + self.down(nn.silu(self.gate(h)) * self.up(h))
  end
  return m
end

local model = nn.module "Model"
model.embed, model.norm, model.head = nn.Embedding(c.vocab, c.dim, { init = nn.init.normal(0, 0.02) }), nn.RMSNorm(c.dim), Linear(c.dim, c.vocab)
model.layers = nn.list {}
for i = 1, c.layers do model.layers[i] = Block(i - 1) end
function model:forward(tokens)
  local x = self.embed(tokens)
  for _, block in ipairs(self.layers) do x = block(x) end
  local logits = self.head(self.norm(x))
  return c.logits_cap and c.logits_cap * nn.tanh(logits / c.logits_cap) or logits
end

local policy = { mp_policy = { param_dtype = "bf16", reduce_dtype = "fp32" } }
for _, block in ipairs(model.layers) do
  if o.recompute then nn.checkpoint_wrapper(block, {}) end
  nn.fully_shard(block, policy)
end
nn.fully_shard(model.embed, policy)
nn.fully_shard(model.head, policy)
nn.fully_shard(model, policy)

return nn.training {
  model = model,
  batch = {
    tokens  = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }),
    targets = nn.input("int32", { o.batch, o.seq }, { from = "tokens", shift = 1 }),
  },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  optimizer = optim.AdamW { lr = 3e-4 },
}
