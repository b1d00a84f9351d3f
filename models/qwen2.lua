-- Qwen 2 and 2.5 (Yang et al. 2024) by their sizes: Llama's layers (families/decoder.lua) with biases on queries, keys and
-- values; the options of training are in families/training.lua. Paths are Hugging Face's.
local nn, training = require "nn", require "families.training"

local o = training.options {
  size = nn.choice("tiny", "0.5b", "1.5b", "3b", "7b", "14b", "32b", "72b"),
  layers = nn.optional "integer", dim = nn.optional "integer", heads = nn.optional "integer",
  kv_heads = nn.optional "integer", head_dim = nn.optional "integer",             -- head_dim: dim / heads
  ffn = nn.optional "integer", vocab = nn.optional "integer",
  tied = nn.optional "boolean", theta = 1000000.0, eps = 1e-6,
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

c.name, c.width, c.eps, c.bias = "Qwen2", width, o.eps, { qkv = true }
c.rope = training.everywhere(c.layers, { theta = o.theta })
return training.of(c, o)
