-- One small module per op; each logs its number, and the loss is their sum. Values and gradients come from PyTorch (ops.py,
-- the same list in the same order).
local nn, optim = require "nn", require "optim"
local o = nn.options { precision = nn.choice("fp32", "bf16", "fp16") }

local cases = {}
local function case(name, shapes, f) cases[#cases + 1] = { name = name, shapes = shapes, f = f } end
local function pointwise(name, f) case(name, { x = { 4, 6 } }, function(m) return f(m.x) end) end

-- ── pointwise ────────────────────────────────────────────────────────────────────────────────────────────────────────
for _, name in ipairs { "exp", "tanh", "sigmoid", "relu", "silu", "abs", "gelu" } do pointwise(name, nn[name]) end
pointwise("gelu_tanh", function(x) return nn.gelu(x, "tanh") end)
pointwise("clamp", function(x) return nn.clamp(x, -0.5, 0.8) end)
pointwise("detach", function(x) return x * nn.detach(x) end)
for _, name in ipairs { "log", "sqrt", "rsqrt" } do
  case("p_" .. name, { p = { 4, 6 } }, function(m) return nn[name](m.p) end)
end
case("scalars", { p = { 4, 6 } }, function(m) return (2 / (m.p * 3 + 1) - 4) / 5 + (1 - m.p) + m.p ^ 1.7 + 2 ^ m.p end)
case("arithmetic", { x = { 4, 6 }, y = { 4, 6 }, p = { 4, 6 } }, function(m) return (m.x + m.y) * (m.x - m.y) / m.p end)
case("cast", { x = { 4, 6 }, y = { 4, 6 } }, function(m) return nn.cast(nn.cast(m.x, "bf16"), "fp32") * m.y end)
case("extremes", { x = { 4, 6 }, y = { 4, 6 } }, function(m) return nn.maximum(m.x, m.y) * nn.minimum(m.x, m.y) end)
case("where", { x = { 4, 6 }, y = { 4, 6 } }, function(m) return nn.where(nn.lt(m.x, m.y), m.x * m.x, m.y * 3) end)
case("broadcast", { x = { 2, 3, 4 }, y = { 4 }, z = { 3, 1 } }, function(m) return m.x * m.y + m.z end)

-- ── reductions and views ─────────────────────────────────────────────────────────────────────────────────────────────
case("sum", { x = { 2, 3, 4 } }, function(m) return nn.sum(m.x, { 0, 2 }) end)
case("mean", { x = { 2, 3, 4 } }, function(m) return nn.mean(m.x, -1, true) * m.x end)
case("max", { x = { 2, 3, 4 } }, function(m) return nn.max(m.x, 2) end) -- with ties
case("softmax", { x = { 2, 3, 4 } }, function(m) return nn.softmax(m.x, 1) end)
case("views", { x = { 2, 3, 4 } }, function(m)
  local a = m.x:transpose(0, 2):reshape(4, 6)
  local p, q = nn.split(a, { 2, 4 }, 1)
  return nn.concat({ q, p * 2, nn.slice(a, 1, 1, 4) }, 1)
end)
case("stack", { x = { 3, 4 }, y = { 3, 4 } }, function(m) return nn.stack({ m.x, m.y, m.x }, 1):permute(2, 0, 1) end)

-- ── matrices ─────────────────────────────────────────────────────────────────────────────────────────────────────────
case("matmul", { x = { 3, 4 }, y = { 4, 5 } }, function(m) return nn.matmul(m.x, m.y) end)
case("matmul_t", { x = { 4, 3 }, y = { 5, 4 } }, function(m) return nn.matmul(m.x:transpose(0, 1), m.y:transpose(0, 1)) end)
case("matmul_batched", { x = { 2, 3, 4 }, y = { 2, 5, 4 } }, function(m) return nn.matmul(m.x, m.y:transpose(1, 2)) end)
case("matmul_shared", { x = { 2, 3, 4 }, y = { 4, 5 } }, function(m) return nn.matmul(m.x, m.y) end)
case("linear", { x = { 2, 3, 4 }, w = { 5, 4 }, c = { 5 } }, function(m) return nn.linear(m.x, m.w, m.c) end)
case("embedding", { w = { 16, 4 } }, function(m, b) return nn.embedding(b.tokens, m.w) end)

-- ── norms ────────────────────────────────────────────────────────────────────────────────────────────────────────────
case("layer_norm", { x = { 3, 6 }, w = { 6 }, c = { 6 } }, function(m) return nn.layer_norm(m.x, m.w, m.c) end)
case("layer_norm_plain", { x = { 3, 6 }, w = { 6 } }, function(m) return nn.layer_norm(m.x, nil, nil, 1e-3) * m.w end)
case("rms_norm", { x = { 3, 6 }, w = { 6 } }, function(m) return nn.rms_norm(m.x, m.w, 1e-5) end)
case("batch_norm", { x = { 4, 3, 5 }, w = { 3 }, c = { 3 }, z = { 4, 3, 5 } }, function(m) -- without z, x has next to no gradient
  return nn.batch_norm(m.x, m.mean, m.var, m.w, m.c, 0.3, 1e-4) * m.z
end)

-- ── attention and rope ───────────────────────────────────────────────────────────────────────────────────────────────
local own, cross = { q = { 2, 8, 4, 6 }, k = { 2, 8, 2, 6 }, v = { 2, 8, 2, 6 } }, { q = { 2, 5, 2, 6 }, k = { 2, 9, 2, 6 }, v = { 2, 9, 2, 6 } }
case("attention_causal", own, function(m) return nn.attention { q = m.q, k = m.k, v = m.v, causal = true } end)
case("attention_full", own, function(m) return nn.attention { q = m.q, k = m.k, v = m.v, scale = 0.3 } end)
case("attention_cross", cross, function(m) return nn.attention { q = m.q, k = m.k, v = m.v } end)
case("attention_documents", own, function(m, b) return nn.attention { q = m.q, k = m.k, v = m.v, causal = true, documents = b.documents } end)
case("rope", { x = { 2, 8, 2, 6 } }, function(m) return nn.rope(m.x, { theta = 100 }) end)
case("rope_positions", { x = { 2, 8, 2, 6 } }, function(m, b) return nn.rope(m.x, { positions = b.positions }) end)
case("rope_scaling", { x = { 2, 8, 2, 8 } }, function(m, b)
  return nn.rope(m.x, { theta = 500, positions = b.positions, scaling = { factor = 8, low = 1, high = 4, original = 64 } })
end)

-- ── losses ───────────────────────────────────────────────────────────────────────────────────────────────────────────
case("cross_entropy", { x = { 2, 8, 16 } }, function(m, b) return nn.cross_entropy(m.x, b.targets) end)
case("mse", { x = { 3, 4 }, y = { 3, 4 } }, function(m) return nn.mse_loss(m.x, m.y) end)

local function Case(c)
  local m = nn.module(c.name)
  for name, shape in pairs(c.shapes) do m[name] = nn.parameter(shape) end
  if c.name == "batch_norm" then
    m.mean, m.var = nn.buffer({ 3 }), nn.buffer({ 3 }, { init = nn.init.ones() })
  end
  function m:forward(b)
    local y = c.f(self, b)
    return nn.mean(y * y * 0.5 + y) -- uneven weights, so that no gradient is constant
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
      nn.log_metric("value." .. c.name, y)
      total = total and total + y or y
    end
    return total
  end
  return m
end

local function index() return nn.input("int32", { 2, 8 }) end

local model = All()
if o.precision ~= "fp32" then nn.fully_shard(model, { mp_policy = { param_dtype = o.precision, reduce_dtype = "fp32" } }) end

return nn.training {
  model = model,
  batch = { tokens = index(), documents = index(), positions = index(), targets = index() },
  loss = function(m, b) return m(b) end,
  optimizer = optim.SGD { lr = 0 },
}
