-- Llama 3, 3.1 and 3.2 (Dubey et al. 2024) by their sizes: rotary positions, grouped queries, gated MLP. The layers are
-- in families/decoder.lua, the options of training in families/training.lua. Paths are Hugging Face's.
local nn, training = require "nn", require "families.training"

local o = training.options {
  size = nn.choice("tiny", "1b", "3b", "8b", "70b", "405b", "3-8b", "3-70b"),    -- below
  layers = nn.optional "integer", dim = nn.optional "integer", heads = nn.optional "integer",
  kv_heads = nn.optional "integer", head_dim = nn.optional "integer",             -- head_dim: dim / heads
  ffn = nn.optional "integer", vocab = nn.optional "integer",
  tied = nn.optional "boolean", theta = 500000.0, eps = 1e-5,
  rope_scaling = nn.optional "boolean",                    -- false: none; on where the size or one of these has it:
  rope_factor = nn.optional "number", rope_low = nn.optional "number", rope_high = nn.optional "number",
  rope_original = nn.optional "integer",
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

c.name, c.width, c.eps = "Llama", width, o.eps
c.rope = training.everywhere(c.layers, { theta = o.theta, scaling = scaling })
return training.of(c, o)
