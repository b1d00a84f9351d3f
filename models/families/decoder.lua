-- A decoder of the kind of Llama: attention and an MLP by turns, each added to the stream. Paths are Hugging Face's.
-- Relies on: nn, families/parts.lua. Relied on by: the families, each of which says in a table what is its own.
local nn, parts = require "nn", require "families.parts"

local Linear, activations = parts.Linear, parts.activations

local function plus_one(self, x) return nn.rms_norm(x, self.weight + 1, self.eps) end
-- c.norm: "one_plus", whose weights are what is added to 1, as Gemma's; "layer", nn.LayerNorm without a bias; else RMSNorm.
local function Norm(c, width)
  if c.norm == "layer" then return nn.LayerNorm(width, { eps = c.eps, bias = false }) end
  if c.norm ~= "one_plus" then return nn.RMSNorm(width, { eps = c.eps }) end
  local m = nn.module "RMSNorm"
  m.weight, m.eps, m.forward = nn.parameter({ width }), c.eps, plus_one
  return m
end

-- Causal attention within chunks of so many positions: each is a sequence of its own where they divide the whole, else a
-- document.
local function chunked(chunk, options)
  local batch, seq = options.q:size(0), options.q:size(1)
  if not chunk or seq <= chunk then return nn.attention(options) end
  if options.documents then error(("attention in chunks of %d positions: documents that share a row need rows of at most so many; --set seq=%d"):format(chunk, chunk), 0) end
  if seq % chunk == 0 then
    for _, name in ipairs { "q", "k", "v" } do
      local x = options[name]
      options[name] = x:reshape(batch * (seq // chunk), chunk, x:size(2), x:size(3))
    end
  else
    local numbers = nn.cast(nn.floor_divide(nn.arange(seq), chunk), "int32")
    options.documents, options.document_length = nn.expand(numbers:reshape(1, seq), { batch, seq }), chunk
  end
  return nn.attention(options)
end

-- Of layer i: c.rope[i] are options of nn.rope, or false; c.window[i] is how many keys a query sees, or false; c.chunk[i]
-- is how many positions see one another, or false. c.temperature: { every, by }, for layers without rope, whose queries
-- grow by `by` log(1 + n) after n times `every` positions.
local function Attention(c, i)
  local m = nn.module(c.name .. "Attention")
  local bias, sizes = c.bias or {}, { c.heads * c.width, c.kv_heads * c.width, c.kv_heads * c.width }
  if c.fused then
    m.qkv_proj = Linear(c.dim, sizes[1] + 2 * sizes[2])
  else
    m.q_proj = Linear(c.dim, sizes[1], bias.qkv)
    m.k_proj = Linear(c.dim, sizes[2], bias.qkv)
    m.v_proj = Linear(c.dim, sizes[3], bias.qkv)
  end
  m.o_proj = Linear(c.heads * c.width, c.dim, bias.o)
  m.sinks = c.sinks and nn.parameter({ c.heads }, { init = nn.init.normal(0, 0.02) }) or false
  m.q_norm, m.k_norm = false, false
  if c.qk_norm == "head" or c.qk_norm == "whole" then      -- of each head; of all of them together; "turned": below
    local whole = c.qk_norm == "whole"
    m.q_norm, m.k_norm = Norm(c, whole and sizes[1] or c.width), Norm(c, whole and sizes[2] or c.width)
  end
  local rope, window = c.rope[i], c.window and c.window[i]
  function m:forward(x, documents)
    local batch, seq = x:size(0), x:size(1)
    local function placed(y, heads, norm)
      if norm and c.qk_norm == "whole" then y = norm(y) end
      y = y:reshape(batch, seq, heads, c.width)
      if norm and c.qk_norm == "head" then y = norm(y) end
      if rope then y = nn.rope(y, rope) end
      return rope and c.qk_norm == "turned" and nn.rms_norm(y, nil, c.eps) or y -- after the rope, without a weight
    end
    local q, k, v
    if c.fused then q, k, v = nn.split(self.qkv_proj(x), sizes, -1) else q = self.q_proj(x) end
    q = placed(q, c.heads, self.q_norm)
    k = placed(k or self.k_proj(x), c.kv_heads, self.k_norm)
    if c.temperature and not rope and seq >= c.temperature.every then
      local times = nn.floor((nn.cast(nn.arange(seq), "fp32") + 1) / c.temperature.every)
      q = q * nn.cast((nn.log1p(times) * c.temperature.by + 1):reshape(1, seq, 1, 1), q)
    end
    v = (v or self.v_proj(x)):reshape(batch, seq, c.kv_heads, c.width)
    local y = chunked(c.chunk and c.chunk[i],
                      { q = q, k = k, v = v, causal = true, documents = documents, dropout = c.attention_dropout or 0, scale = c.scale, softcap = c.attention_softcap, sinks = self.sinks or nil,
                        window = window and { window - 1, 0 } or nil })
    return self.o_proj(y:reshape(batch, seq, c.heads * c.width))
  end
  return m
end

-- Queries, keys and values of a few numbers a token (DeepSeek-V2's latent attention): c.latent has `queries`, the width of
-- what queries are made of (nil: of the stream), `keys`, that of keys and values, and the widths of a head's parts: `plain`,
-- `turned` by the rope, whose keys all heads share, and `values`.
local function LatentAttention(c, i)
  local m, l, bias = nn.module(c.name .. "Attention"), c.latent, c.bias or {}
  local width = l.plain + l.turned
  if l.queries then
    m.q_a_proj, m.q_a_layernorm = Linear(c.dim, l.queries, bias.qkv), nn.RMSNorm(l.queries, { eps = 1e-6 })
    m.q_b_proj = Linear(l.queries, c.heads * width)
  else
    m.q_proj = Linear(c.dim, c.heads * width)
  end
  m.kv_a_proj_with_mqa, m.kv_a_layernorm = Linear(c.dim, l.keys + l.turned, bias.qkv), nn.RMSNorm(l.keys, { eps = 1e-6 })
  m.kv_b_proj, m.o_proj = Linear(l.keys, c.heads * (l.plain + l.values)), Linear(c.heads * l.values, c.dim, bias.o)
  function m:forward(x, documents)
    local batch, seq = x:size(0), x:size(1)
    local q = l.queries and self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) or self.q_proj(x)
    local q_plain, q_turned = nn.split(q:reshape(batch, seq, c.heads, width), { l.plain, l.turned }, -1)
    local latent, k_turned = nn.split(self.kv_a_proj_with_mqa(x), { l.keys, l.turned }, -1)
    local k_plain, v = nn.split(self.kv_b_proj(self.kv_a_layernorm(latent)):reshape(batch, seq, c.heads, l.plain + l.values), { l.plain, l.values }, -1)
    k_turned = nn.expand(nn.rope(k_turned:reshape(batch, seq, 1, l.turned), c.rope[i]), { batch, seq, c.heads, l.turned })
    local y = nn.attention { q = nn.concat({ q_plain, nn.rope(q_turned, c.rope[i]) }, -1), k = nn.concat({ k_plain, k_turned }, -1), v = v, causal = true,
                             documents = documents, dropout = c.attention_dropout or 0, scale = c.scale }
    return self.o_proj(y:reshape(batch, seq, c.heads * l.values))
  end
  return m
end

local function MLP(c)
  local m, bias, act = nn.module(c.name .. "MLP"), c.bias or {}, activations[c.activation or "silu"]
  if c.fused or c.fused_mlp then
    m.gate_up_proj, m.down_proj = Linear(c.dim, 2 * c.ffn), Linear(c.ffn, c.dim)
    function m:forward(x)
      local gate, up = nn.chunk(self.gate_up_proj(x), 2, -1)
      return self.down_proj(act(gate) * up)
    end
    return m
  end
  m.gate_proj, m.up_proj, m.down_proj = Linear(c.dim, c.ffn, bias.mlp), Linear(c.dim, c.ffn, bias.mlp), Linear(c.ffn, c.dim, bias.mlp)
  function m:forward(x) return self.down_proj(act(self.gate_proj(x)) * self.up_proj(x)) end
  return m
end

-- c.experts(i): options of nn.MoE in layer i, and its hidden size as `hidden`; nil: an MLP. c.mlp: what it is called.
local function FeedForward(c, i)
  local o = c.experts and c.experts(i)
  if not o then return MLP(c) end
  local hidden = o.hidden
  o.hidden, o.init = nil, nn.init.normal(0, 0.02)
  return nn.MoE(c.dim, hidden, o)
end

-- c.norms: the names of the norms before and after attention and MLP, of which some may be missing.
local llama = { before_attention = "input_layernorm", before_mlp = "post_attention_layernorm" }
local function Block(c, i)
  local m, norms = nn.module(c.name .. "DecoderLayer"), c.norms or llama
  local function normed(self, place, x) return norms[place] and self[norms[place]](x) or x end
  if norms.before_attention then m[norms.before_attention] = Norm(c, c.dim) end
  m.self_attn = c.latent and LatentAttention(c, i) or Attention(c, i)
  for _, place in ipairs { "after_attention", "before_mlp" } do
    if norms[place] then m[norms[place]] = Norm(c, c.dim) end
  end
  local mlp = c.mlp or "mlp"
  m[mlp] = FeedForward(c, i)
  if norms.after_mlp then m[norms.after_mlp] = Norm(c, c.dim) end
  local function added(x, y)
    y = nn.dropout(y, c.dropout or 0)
    return x + (c.residual_multiplier and y * c.residual_multiplier or y)
  end
  function m:forward(x, documents)
    x = added(x, normed(self, "after_attention", self.self_attn(normed(self, "before_attention", x), documents)))
    local y, scores, counts = self[mlp](normed(self, "before_mlp", x))
    return added(x, normed(self, "after_mlp", y)), scores and nn.balance_loss(scores, counts)
  end
  function m:parallel(x, documents)                                   -- both read what one norm makes
    local y = normed(self, "before_attention", x)
    return x + self.self_attn(y, documents) + self[mlp](y)
  end
  if c.parallel then m.forward = m.parallel end
  return m
end

-- A module of multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2), layer i of the decoder: of what the one
-- before it made of each token, and the embedding of a later one, it makes what shared_head.norm and the head read.
local function Predictor(c, i)
  local m = Block(c, i)
  local layer = m.forward
  m.enorm, m.hnorm, m.eh_proj = Norm(c, c.dim), Norm(c, c.dim), Linear(2 * c.dim, c.dim)
  m.shared_head = nn.module(c.name .. "SharedHead")
  m.shared_head.norm = Norm(c, c.dim)
  function m:forward(x, embedded, documents)
    return layer(self, self.eh_proj(nn.concat({ self.enorm(embedded), self.hnorm(x) }, -1)), documents)
  end
  return m
end

-- c.predictors: how many modules of multi-token prediction stand behind the layers, in one list with them; nil: none.
local function Body(c)
  local m = nn.module(c.name .. "Model")
  m.embed_tokens = parts.Embedding(c.vocab, c.dim)
  m.layers = nn.list {}
  for i = 1, c.layers do m.layers[i] = Block(c, i) end
  for i = c.layers + 1, c.layers + (c.predictors or 0) do m.layers[i] = Predictor(c, i) end
  m.norm = Norm(c, c.dim)
  function m:forward(tokens, documents)
    local x = self.embed_tokens(tokens)
    if c.embedding_multiplier then x = x * c.embedding_multiplier end
    local balance
    for i = 1, c.layers do
      local one
      x, one = self.layers[i](x, documents)
      balance = balance and one and balance + one or balance or one
    end
    return self.norm(x), balance
  end
  return m
end

-- The decoder with its head. m:hidden(tokens): what the head reads, and the sum of layers' balance losses where there are
-- experts; m(tokens): logits, and that sum. documents: numbers of what tokens belong to, which attention stays inside, or nil.
return function(c)
  local m = nn.module(c.name .. "ForCausalLM")
  m.model = Body(c)
  m.lm_head = Linear(c.dim, c.vocab)
  if c.tied then m.lm_head.weight = m.model.embed_tokens.weight end
  function m:hidden(tokens, documents)
    local x, balance = self.model(tokens, documents)
    return c.logits_multiplier and x * c.logits_multiplier or x, balance
  end
  function m:forward(tokens, documents)
    local x, balance = self:hidden(tokens, documents)
    return self:logits(x), balance
  end
  function m:logits(x)
    local logits = self.lm_head(x)
    return c.logits_softcap and nn.tanh(logits / c.logits_softcap) * c.logits_softcap or logits
  end
  return m
end
