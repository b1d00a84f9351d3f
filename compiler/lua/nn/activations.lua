-- nn: activation functions with numbers, and those made of others.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/pointwise.lua.
-- Relied on by: nn.lua, which makes the module of it. In 16 bits they compute in fp32 and round once.
local prim = prim
local nn, op, fail = prim.nn, prim.op, prim.refuse
local in_fp32, floating, need_tensor, options = prim.in_fp32, prim.floating, prim.need_tensor, prim.take_options

-- ── more activations, as torch.nn.functional.NAME ────────────────────────────────────────────────────────────────────

-- One op of x with numbers, by the names of ops.def.
local function activation(name, x, numbers)
  numbers.a = floating(need_tensor(name, x))
  return (op(name, numbers))
end

-- x held within min_val (-1) and max_val (1), or within 0 and 6.
function nn.hardtanh(x, min_val, max_val)
  local low, high = options("nn.hardtanh", "min_val max_val", { -1, 1 }, min_val, max_val)
  return nn.clamp(floating(need_tensor("hardtanh", x)), low, high)
end
function nn.relu6(x) return nn.clamp(floating(need_tensor("relu6", x)), 0, 6) end

-- x, times negative_slope (0.01) below 0.
function nn.leaky_relu(x, negative_slope)
  return activation("leaky_relu", x, { x = options("nn.leaky_relu", "negative_slope", { 0.01 }, negative_slope) })
end

-- x, below 0 alpha (e^x - 1) (elu) or alpha (e^(x/alpha) - 1) (celu), alpha 1; selu: elu with its own alpha and scale.
function nn.elu(x, alpha)
  return activation("elu", x, { outer = options("nn.elu", "alpha", { 1 }, alpha), inner = 1 })
end
function nn.celu(x, alpha)
  alpha = options("nn.celu", "alpha", { 1 }, alpha)
  return activation("elu", x, { outer = alpha, inner = 1 / alpha })
end
function nn.selu(x)
  return in_fp32(function(a) return nn.elu(a, 1.6732632423543772848) * 1.0507009873554804934 end, need_tensor("selu", x))
end

-- log(1 + e^(beta x)) / beta, x itself where beta x is above the threshold. beta: 1, threshold: 20.
function nn.softplus(x, beta, threshold)
  local b, limit = options("nn.softplus", "beta threshold", { 1, 20 }, beta, threshold)
  return activation("softplus", x, { beta = b, limit = limit })
end

-- x above the threshold, else `value`.
function nn.threshold(x, threshold, value)
  local limit, v = options("nn.threshold", "threshold value", { 0, 0 }, threshold, value)
  return activation("threshold", x, { limit = limit, value = v })
end

-- x, 0 from -lambd to lambd (0.5); softshrink: x moved toward 0 by lambd elsewhere.
function nn.hardshrink(x, lambd)
  return activation("hardshrink", x, { x = options("nn.hardshrink", "lambd", { 0.5 }, lambd) })
end
function nn.softshrink(x, lambd)
  return activation("softshrink", x, { x = options("nn.softshrink", "lambd", { 0.5 }, lambd) })
end

-- x / (1 + |x|), and x - tanh(x).
function nn.softsign(x) return in_fp32(function(a) return a / (nn.abs(a) + 1) end, need_tensor("softsign", x)) end
function nn.tanhshrink(x) return in_fp32(function(a) return a - nn.tanh(a) end, need_tensor("tanhshrink", x)) end

-- x, times the weight below 0: one number for all, or one for each channel, which is dimension 1 of x.
function nn.prelu(x, weight)
  local n, shape = need_tensor("prelu", weight).shape[1] or 1, {}
  for d = 1, need_tensor("prelu", x).ndim do shape[d] = d == 2 and n or 1 end
  if weight.ndim > 1 or (n > 1 and (x.ndim < 2 or x.shape[2] ~= n)) then
    fail(nil, "prelu: the weight %s must be one number, or one for each channel of x %s", tostring(weight), tostring(x))
  end
  return in_fp32(function(a, w) return nn.where(nn.gt(a, 0), a, nn.reshape(w, shape) * a) end, x, weight)
end

-- The first half of x along dim (the last), times the sigmoid of the second.
function nn.glu(x, dim)
  local a, gate = nn.chunk(x, 2, options("nn.glu", "dim", { -1 }, dim))
  return in_fp32(function(v, g) return v * nn.sigmoid(g) end, a, gate)
end

-- softmax(-x) over dim (the last).
function nn.softmin(x, dim) return nn.softmax(-need_tensor("softmin", x), dim) end
