-- nn: functions of each element, and metrics.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, describe, check_keys = prim.nn, prim.op, prim.refuse, prim.describe, prim.check_keys
local table_of, is_tensor, floating, need_tensor = prim.table_of, prim.is_tensor, prim.floating, prim.need_tensor

-- ── pointwise ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The function of each element of x, as torch.NAME. Integers are cast to fp32 first. The result has x's shape.
for _, name in ipairs { "exp", "exp2", "expm1", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh",
  "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "i0", "tanh", "sigmoid", "relu", "silu", "mish", "logsigmoid", "hardsigmoid", "hardswish" } do
  nn[name] = function(x) return (op(name, { a = floating(need_tensor(name, x)) })) end
end

-- Each element rounded to a whole number, as torch.NAME: down, up, toward zero. The gradient is 0.
for _, name in ipairs { "floor", "ceil", "trunc" } do
  nn[name] = function(x) return prim.is_float(need_tensor(name, x)) and (op(name, { a = x })) or x end
end

-- The magnitude, the sign (-1, 0 or 1, with gradient 0) and -x of each element, in x's dtype, as torch.NAME.
function nn.abs(x) return (op("abs", { a = need_tensor("abs", x) })) end
function nn.sign(x) return (op("sign", { a = need_tensor("sign", x) })) end
function nn.neg(x) return -need_tensor("neg", x) end

-- GELU of each element, as torch.nn.functional.gelu. approximate: "none" (exact, the default) or "tanh".
function nn.gelu(x, approximate)
  if approximate ~= nil and approximate ~= "none" and approximate ~= "tanh" then
    fail(nil, 'gelu: the approximation is "none" (exact, the default) or "tanh", not %s', describe(approximate))
  end
  return (op(approximate == "tanh" and "gelu_tanh" or "gelu", { a = floating(need_tensor("gelu", x)) }))
end

-- Arithmetic on two tensors, or on a tensor and a number, as torch.NAME. The operators + - * / ^ mean the same. Shapes
-- broadcast and dtypes are promoted as in PyTorch.
for _, name in ipairs { "add", "sub", "mul", "div" } do
  nn[name] = function(a, b) return prim.arithmetic(name, a, b) end
end
function nn.pow(a, b)
  local function power(x, y) return prim.arithmetic("pow", x, y) end
  return is_tensor(b) and prim.in_fp32(power, a, b) or power(a, b)
end

-- Comparisons (the result is bool) and the larger or smaller of two, element by element, as torch.NAME. a and b are
-- tensors or numbers, at least one a tensor. Shapes broadcast.
for _, name in ipairs { "lt", "le", "gt", "ge", "eq", "ne", "maximum", "minimum" } do
  nn[name] = function(a, b) return prim.pointwise(name, a, b) end
end

-- a where the condition (a tensor) is true, else b, as torch.where. a and b are tensors or numbers. Shapes broadcast.
function nn.where(condition, a, b) return prim.where(condition, a, b) end

-- x held within low and high, as torch.clamp. Both bounds are numbers; either may be nil. At a bound the gradient is 0.
function nn.clamp(x, low, high)
  need_tensor("clamp", x)
  for _, bound in ipairs { low or 0, high or 0 } do
    if type(bound) ~= "number" or bound ~= bound then
      fail("nn.maximum and nn.minimum take tensors", "clamp: a bound is %s; bounds are numbers", describe(bound))
    end
  end
  if not low and not high then fail(nil, "clamp: give a lower bound, an upper bound, or both") end
  if low and high and low > high then fail(nil, "clamp: the lower bound %g is above the upper bound %g", low, high) end
  local whole = math.tointeger(low or 0) and math.tointeger(high or 0)
  return (op("clamp", { a = whole and x or floating(x), low = low or -math.huge, high = high or math.huge }))
end

-- nn.cast(x, "fp32") is x in that dtype, as x.to(dtype) in PyTorch; so it is also in a unit that computes in 16 bits.
-- nn.cast(x, y) takes the dtype that the tensor y has in its unit. That may differ from y.dtype, which is the dtype
-- before policies are applied.
function nn.cast(x, dtype) return prim.cast(need_tensor("cast", x), dtype) end
-- x without its gradient, as torch.detach.
function nn.detach(x) return (op("detach", { a = need_tensor("detach", x) })) end

-- Writes x, one number, to the program's log at each step. options: reduce = "mean" (the default) or "sum" over ranks
-- and microbatches.
function nn.log_metric(name, x, options)
  if type(name) ~= "string" then
    local call = is_tensor(name) and type(x) == "string" and ("write nn.log_metric(%q, x)"):format(x)
    fail(call or 'write nn.log_metric("name", x)', "nn.log_metric: expected a name and a number, got %s first", describe(name))
  end
  return prim.log_metric(name, x, options)
end

-- The natural logarithm, as torch.log. nn.log("name", x), an older spelling of log_metric, works and prints a note.
local noted = {}
function nn.log(x, second, options)
  if type(x) == "string" and second ~= nil then
    if not noted[x] then prim.note(("nn.log(%q, x) logs a metric as before; write nn.log_metric(%q, x), as nn.log is the logarithm"):format(x, x)) end
    noted[x] = true
    return nn.log_metric(x, second, options)
  end
  if second ~= nil then
    local name = type(second) == "string" and second or "name"
    fail(("write nn.log_metric(%q, x) to log a metric"):format(name), "nn.log: the logarithm takes a tensor alone, not %s too", describe(second))
  end
  if type(x) == "string" then fail(("write nn.log_metric(%q, x) to log a metric"):format(x), "nn.log: expected a tensor, got %s", describe(x)) end
  return (op("log", { a = floating(need_tensor("log", x)) }))
end

-- x itself, later: the forward waits forward_ms milliseconds, the backward backward_ms (0 by default). It stands for
-- work that a model lacks, in experiments with overlap.
function nn.debug_sleep(x, options)
  local o = table_of(options)
  check_keys("nn.debug_sleep", o, "forward_ms backward_ms")
  local ms = { o.forward_ms or 0, o.backward_ms or 0 }
  for i, name in ipairs { "forward_ms", "backward_ms" } do
    if type(ms[i]) ~= "number" or not (ms[i] >= 0 and ms[i] <= 1e6) then
      fail(nil, "debug_sleep: %s must be a number of milliseconds from 0 to 1000000, not %s", name, describe(ms[i]))
    end
  end
  return (op("debug_sleep", { a = floating(need_tensor("debug_sleep", x)), ms = ms[1], ms_backward = ms[2] }))
end
