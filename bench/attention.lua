-- One attention of given sizes, with documents, dropout, a window (`before` positions up to a query, itself included),
-- a soft cap, a learned bias, sinks or values of another width where asked for. bench/times.py lists attention's
-- kernels by it.
local nn, optim = require "nn", require "optim"
local o = nn.options { batch = 1, seq = 1024, heads = 8, kv_heads = 8, width = 64, causal = true, documents = false, dropout = 0.0,
                       before = 0, softcap = 0.0, bias = false, sinks = false, value_width = 0,
                       precision = nn.choice("bf16", "fp16", "fp32"), deterministic = true }

local m = nn.module "Attention"
m.q = nn.Linear(64, o.heads * o.width, { bias = false })
m.k = nn.Linear(64, o.kv_heads * o.width, { bias = false })
local value_width = o.value_width > 0 and o.value_width or o.width
m.v = nn.Linear(64, o.kv_heads * value_width, { bias = false })
m.bias = o.bias and nn.parameter { 1, o.heads, o.seq, o.seq }
m.sinks = o.sinks and nn.parameter { o.heads }
function m:forward(x, documents)
  local function heads(y, n, width) return nn.reshape(y, o.batch, o.seq, n, width) end
  return nn.attention { q = heads(self.q(x), o.heads, o.width), k = heads(self.k(x), o.kv_heads, o.width), v = heads(self.v(x), o.kv_heads, value_width), causal = o.causal,
                        documents = o.documents and documents or nil, dropout = o.dropout,
                        window = o.before > 0 and { o.before - 1, o.causal and math.huge or o.before - 1 } or nil, softcap = o.softcap > 0 and o.softcap or nil,
                        bias = self.bias or nil, sinks = self.sinks or nil }
end
nn.fully_shard(m, o.precision ~= "fp32" and { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } } or {})

return nn.training {
  model = m, deterministic = o.deterministic,
  batch = { x = nn.input("fp32", { o.batch, o.seq, 64 }), documents = nn.input("int32", { o.batch, o.seq }) },
  loss = function(model, b) return nn.mean(nn.cast(model(b.x, b.documents), "fp32")) end,
  optimizer = optim.SGD { lr = 1 },
}
