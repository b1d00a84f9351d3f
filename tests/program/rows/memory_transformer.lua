-- M3: a transformer with dropout and one table for both embeddings, the loss the sum of its logits, every block recomputed;
-- the unit on the block, or (wrapper) on a module round it, as PyTorch's checkpoint wrapper is one.
local nn, optim = require "nn", require "optim"
local o = nn.options {
  layers = 4, dim = 16, heads = 4, vocab = 8192, seq = 512, batch = 16, dropout = 0.1, reshard = true, wrapper = false,
  recompute = true, tie = true,
}

local function bare(inputs, outputs) return nn.Linear(inputs, outputs, { bias = false }) end

local function Attention()
  local m = nn.module "Attention"
  m.wq, m.wk, m.wv, m.wo = bare(o.dim, o.dim), bare(o.dim, o.dim), bare(o.dim, o.dim), bare(o.dim, o.dim)
  function m:forward(x)
    local batch, seq, width = x:size(0), x:size(1), o.dim // o.heads
    local function heads(y) return y:reshape(batch, seq, o.heads, width) end
    local y = nn.attention { q = heads(self.wq(x)), k = heads(self.wk(x)), v = heads(self.wv(x)), causal = true, dropout = o.dropout }
    return nn.dropout(self.wo(y:reshape(batch, seq, o.dim)), o.dropout)
  end
  return m
end

local function FeedForward()
  local m = nn.module "FeedForward"
  m.w1, m.w2 = nn.Linear(o.dim, 4 * o.dim), nn.Linear(4 * o.dim, o.dim)
  function m:forward(x) return nn.dropout(self.w2(nn.gelu(self.w1(x))), o.dropout) end
  return m
end

local function Block()
  local m = nn.module "Block"
  m.attention_norm, m.attention, m.ffn_norm, m.feed_forward = nn.LayerNorm(o.dim), Attention(), nn.LayerNorm(o.dim), FeedForward()
  function m:forward(x)
    x = x + self.attention(self.attention_norm(x))
    return x + self.feed_forward(self.ffn_norm(x))
  end
  return m
end

local function Wrapper(inner)
  local m = nn.module "Wrapper"
  m.inner = inner
  function m:forward(x) return self.inner(x) end
  return m
end

local model = nn.module "Transformer"
model.tok_embeddings, model.pos_embeddings = nn.Embedding(o.vocab, o.dim), nn.Embedding(o.seq, o.dim)
model.layers, model.norm, model.output = nn.list {}, nn.LayerNorm(o.dim), bare(o.dim, o.vocab)
if o.tie then model.output.weight = model.tok_embeddings.weight end
for i = 1, o.layers do
  local block = Block()
  if o.recompute then nn.checkpoint_wrapper(block, {}) end
  model.layers[i] = o.wrapper and Wrapper(block) or block
end
function model:forward(tokens)
  local x = nn.dropout(self.tok_embeddings(tokens) + self.pos_embeddings(nn.arange(tokens:size(1))), o.dropout)
  for _, layer in ipairs(self.layers) do x = layer(x) end
  return self.output(self.norm(x))
end

local policy = { reshard_after_forward = o.reshard }
for _, layer in ipairs(model.layers) do nn.fully_shard(layer, policy) end
nn.fully_shard(model, policy)

return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { o.batch, o.seq }, { from = "tokens" }) },
  loss = function(m, b) return nn.sum(m(b.tokens)) end,
  optimizer = optim.Adam { lr = 1e-2 },
}
