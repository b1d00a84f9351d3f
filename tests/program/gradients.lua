-- One small module per op, each with parameters of its own and a scalar result; the loss is their sum. The fp64 test build
-- compares each gradient with central differences (test_gradients.py).
local nn, optim = require "nn", require "optim"

local function normal(...) return nn.parameter({ ... }, { dtype = "fp64", init = nn.init.normal(0, 0.7) }) end
-- positive and away from zero, for log, sqrt, div, pow
local function positive(...) return nn.parameter({ ... }, { dtype = "fp64", init = nn.init.uniform(0.5, 2.0) }) end

-- cases[name] = function(m, b) -> tensor; parameters are made by `with`
local cases = {}
local function case(name, params, f) cases[#cases + 1] = { name = name, params = params, f = f } end

for _, name in ipairs { "neg", "exp", "tanh", "sigmoid", "relu", "silu", "abs" } do
  case(name, { x = { normal, 3, 5 } }, function(m) return nn[name](m.x) end)
end
for _, name in ipairs { "log", "sqrt", "rsqrt" } do
  case(name, { x = { positive, 3, 5 } }, function(m) return nn[name](m.x) end)
end
case("gelu", { x = { normal, 4, 4 } }, function(m) return nn.gelu(m.x) end)
case("gelu_tanh", { x = { normal, 4, 4 } }, function(m) return nn.gelu(m.x, "tanh") end)
case("clamp", { x = { normal, 4, 4 } }, function(m) return nn.clamp(m.x, -0.5, 0.8) end)
case("add", { x = { normal, 3, 4 }, y = { normal, 3, 4 } }, function(m) return m.x + m.y end)
case("sub", { x = { normal, 3, 4 }, y = { normal, 3, 4 } }, function(m) return m.x - m.y end)
case("mul", { x = { normal, 3, 4 }, y = { normal, 3, 4 } }, function(m) return m.x * m.y end)
case("div", { x = { normal, 3, 4 }, y = { positive, 3, 4 } }, function(m) return m.x / m.y end)
case("scalars", { x = { positive, 3, 4 } }, function(m) return (2 / (m.x * 3 + 1) - 4) / 5 + (1 - m.x) + m.x ^ 1.7 end)
case("maximum", { x = { normal, 3, 4 }, y = { normal, 3, 4 } }, function(m) return nn.maximum(m.x, m.y) * nn.minimum(m.x, m.y) end)
case("where", { x = { normal, 3, 4 }, y = { normal, 3, 4 } }, function(m) return nn.where(nn.lt(m.x, m.y), m.x * m.x, m.y * 3) end)
case("broadcast", { x = { normal, 2, 3, 4 }, y = { normal, 4 }, z = { normal, 3, 1 } }, function(m) return m.x * m.y + m.z end)
case("sum", { x = { normal, 2, 3, 4 } }, function(m) return nn.sum(m.x, 1) * nn.sum(m.x, 1) end)
case("mean", { x = { normal, 2, 3, 4 } }, function(m) return nn.mean(m.x, -1, true) * m.x end)
case("max", { x = { normal, 2, 3, 4 } }, function(m) return nn.max(m.x, 2) end)
case("views", { x = { normal, 2, 3, 4 } }, function(m)
  local a = m.x:transpose(0, 2):reshape(4, 6)
  local p, q = nn.split(a, { 2, 4 }, 1)
  return nn.concat({ q, p * 2, nn.slice(a, 1, 1, 3) }, 1)
end)
case("split", { x = { normal, 4, 6 } }, function(m) -- the joined gradients of the pieces are the parameter's
  local p, q = nn.split(m.x + 1, 3, 1)
  return nn.split(p * q, { 3 }, 1) * p
end)
case("split_whole", { x = { normal, 4, 6 } }, function(m)
  local p = nn.split(m.x + 1, 6, 1)
  return p * p
end)
case("matmul", { x = { normal, 3, 4 }, y = { normal, 4, 5 } }, function(m) return nn.matmul(m.x, m.y) end)
case("matmul_t", { x = { normal, 4, 3 }, y = { normal, 5, 4 } }, function(m) return nn.matmul(m.x:transpose(0, 1), m.y:transpose(0, 1)) end)
case("matmul_batched", { x = { normal, 2, 3, 4 }, y = { normal, 2, 5, 4 } }, function(m) return nn.matmul(m.x, m.y:transpose(1, 2)) end)
case("linear", { x = { normal, 2, 3, 4 }, w = { normal, 5, 4 }, c = { normal, 5 } }, function(m) return nn.linear(m.x, m.w, m.c) end)
case("embedding", { w = { normal, 16, 4 } }, function(m, b) return nn.embedding(b.tokens, m.w) end)
case("layer_norm", { x = { normal, 3, 6 }, w = { normal, 6 }, c = { normal, 6 } }, function(m) return nn.layer_norm(m.x, m.w, m.c) end)
case("rms_norm", { x = { normal, 3, 6 }, w = { normal, 6 } }, function(m) return nn.rms_norm(m.x, m.w) end)
case("softmax", { x = { normal, 3, 6 } }, function(m) return nn.softmax(m.x, -1) end)
case("batch_norm", { x = { normal, 6, 3 }, w = { normal, 3 }, c = { normal, 3 } }, function(m) return nn.batch_norm(m.x, m.mean, m.var, m.w, m.c) end)
local qkv = { q = { normal, 2, 8, 4, 6 }, k = { normal, 2, 8, 2, 6 }, v = { normal, 2, 8, 2, 6 } }
case("attention_causal", qkv, function(m) return nn.attention { q = m.q, k = m.k, v = m.v, causal = true } end)
case("attention_full", qkv, function(m) return nn.attention { q = m.q, k = m.k, v = m.v } end)
case("attention_cross", { q = { normal, 2, 5, 2, 6 }, k = { normal, 2, 9, 2, 6 }, v = { normal, 2, 9, 2, 6 } },
  function(m) return nn.attention { q = m.q, k = m.k, v = m.v } end)
case("attention_documents", qkv, function(m, b) return nn.attention { q = m.q, k = m.k, v = m.v, causal = true, documents = b.documents } end)
case("attention_dropout", qkv, function(m) return nn.attention { q = m.q, k = m.k, v = m.v, causal = true, dropout = 0.3 } end)
-- products that become one (QKV fusion): queries, keys and values, of which the last are not turned
case("joined_heads", { x = { normal, 2, 5, 16 }, v = { normal, 8, 16 }, q = { normal, 16, 16 }, k = { normal, 8, 16 }, cv = { normal, 8 },
  cq = { normal, 16 }, ck = { normal, 8 } }, function(m)
  local v = nn.linear(m.x, m.v, m.cv):reshape(2, 5, 2, 4)
  local q = nn.rope(nn.linear(m.x, m.q, m.cq):reshape(2, 5, 4, 4), { theta = 100 })
  local k = nn.rope(nn.linear(m.x, m.k, m.ck):reshape(2, 5, 2, 4), { theta = 100 })
  return nn.attention { q = q, k = k, v = v, causal = true }
end)
-- biases before norms: their gradients are summed where the norms' are made (epilogue fusion)
case("biases_before_norms", { x = { normal, 2, 3, 6 }, w = { normal, 6, 6 }, c = { normal, 6 }, s = { normal, 6 }, t = { normal, 6 },
  v = { normal, 6, 6 }, d = { normal, 6 }, u = { normal, 6 } }, function(m)
  local y = m.x + nn.linear(m.x, m.w, m.c)
  return nn.rms_norm(y + nn.linear(nn.layer_norm(y, m.s, m.t), m.v, m.d), m.u)
end)
case("halves_of_a_gate", { x = { normal, 3, 8 }, both = { normal, 32, 8 } }, function(m)
  local gate, up = nn.linear(m.x, m.both):chunk(2, 1)
  return nn.silu(gate) * up
end)
-- what is gated by a silu (epilogue fusion): between products, with a sum's bias, by itself, by its own value
case("gated_product", { x = { normal, 3, 6 }, g = { normal, 10, 6 }, u = { normal, 10, 6 }, c = { normal, 10 }, d = { normal, 4, 10 } },
  function(m) return nn.linear(nn.linear(m.x, m.u, m.c) * nn.silu(nn.linear(m.x, m.g)), m.d) end)
case("gated_batch", { x = { normal, 2, 3, 6 }, g = { normal, 2, 10, 6 }, u = { normal, 2, 6, 10 }, d = { normal, 2, 10, 4 } }, function(m)
  return nn.matmul(nn.matmul(m.x, m.u) * nn.silu(nn.matmul(m.x, m.g:transpose(1, 2))), m.d)
end)
case("gate", { g = { normal, 3, 7 }, u = { normal, 3, 7 } }, function(m) return nn.silu(m.g) * m.u end)
case("gated_by_itself", { x = { normal, 3, 6 }, w = { normal, 8, 6 }, d = { normal, 4, 8 } }, function(m)
  local y = nn.linear(m.x, m.w)
  return nn.linear(nn.silu(y) * y, m.d)
end)
case("rope", { x = { normal, 2, 8, 2, 6 } }, function(m) return nn.rope(m.x, { theta = 100 }) end)
case("dropout", { x = { normal, 2, 40 } }, function(m) return nn.dropout(m.x, 0.4) end)
case("cross_entropy", { x = { normal, 2, 8, 16 } }, function(m, b) return nn.cross_entropy(m.x, b.tokens) end)
case("mse", { x = { normal, 3, 4 }, y = { normal, 3, 4 } }, function(m) return nn.mse_loss(m.x, m.y) end)
case("debug_sleep", { x = { normal, 3, 4 } }, function(m) return nn.debug_sleep(m.x:transpose(0, 1), { forward_ms = 0.1, backward_ms = 0.2 }) end)
case("detach", { x = { normal, 3, 4 } }, function(m) return m.x * nn.detach(m.x) end)
-- two results, of which one or both have a gradient; an integer operand
local mixed = nn.custom_op {
  source = "rows/custom.c", forward = "mixed", backward = "mixed_grad", numbers = { 1.5 },
  results = function(x) return { x.shape, { shape = { 12 }, dtype = "fp64" } } end,
}
local rows = nn.custom_op {
  source = "rows/custom.c", forward = "rows", backward = "rows_grad",
  results = function(index, w) return { { index:size(0), index:size(1), w:size(1) } } end,
}
case("custom", { x = { normal, 3, 4 }, w = { positive, 3, 4 } }, function(m)
  local y, z = mixed(m.x, m.w)
  return y * z:reshape(3, 4)
end)
case("custom_first", { x = { normal, 3, 4 }, w = { positive, 3, 4 } }, function(m) return (mixed(m.x, m.w)) end)
case("custom_rows", { w = { normal, 16, 4 } }, function(m, b) return rows(b.tokens, m.w) end)

local function Case(c)
  local m = nn.module(c.name)
  for name, p in pairs(c.params) do m[name] = p[1](table.unpack(p, 2)) end
  if c.name == "batch_norm" then
    m.mean = nn.buffer({ 3 }, { dtype = "fp64", init = nn.init.zeros() })
    m.var = nn.buffer({ 3 }, { dtype = "fp64", init = nn.init.ones() })
  end
  function m:forward(b)
    local y = c.f(self, b)
    if #y.shape == 0 then y = nn.concat({ y:reshape(1), y:reshape(1) * 2 }, 0) end -- so that a sum of its own follows
    return nn.sum(y * y * 0.5 + y) -- uneven weights, so that no gradient is constant
  end
  return m
end

local function All()
  local m = nn.module "All"
  for _, c in ipairs(cases) do m["op_" .. c.name] = Case(c) end
  function m:forward(b)
    local total
    for _, c in ipairs(cases) do
      local y = self["op_" .. c.name](b)
      total = total and total + y or y
    end
    return total
  end
  return m
end

return nn.training {
  model = All(),
  batch = { tokens = nn.input("int32", { 2, 8 }, { from = "tokens" }), documents = nn.input("int32", { 2, 8 }) },
  loss = function(m, b) return m(b) end,
  optimizer = optim.SGD { lr = 0 },
}
