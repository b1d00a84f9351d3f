-- nn: functions of each element that are made of the primitives, and questions about elements.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/pointwise.lua.
-- Relied on by: nn.lua, which makes the module of it. In 16 bits they compute in fp32 and round once.
local prim = prim
local nn, is_tensor, is_float = prim.nn, prim.is_tensor, prim.is_float
local in_fp32, need_tensor, options = prim.in_fp32, prim.need_tensor, prim.take_options

-- ── more functions of each element ───────────────────────────────────────────────────────────────────────────────────

-- Each element rounded to a whole number, halves to the even one, or to so many decimals, as torch.round. The gradient
-- is 0.
function nn.round(x, decimals)
  local n = options("nn.round", "decimals", { 0 }, decimals)
  if not is_float(need_tensor("round", x)) then return x end
  local function whole(a) return (prim.op("round", { a = a })) end
  if n == 0 then return whole(x) end
  return in_fp32(function(a) return n > 0 and whole(a * 10 ^ n) / 10 ^ n or whole(a / 10 ^ -n) * 10 ^ -n end, x)
end

-- Each element without its whole part, squared, its reciprocal, itself, in radians and in degrees, as torch.NAME.
function nn.frac(x) return in_fp32(function(a) return a - nn.trunc(a) end, need_tensor("frac", x)) end
function nn.square(x) return need_tensor("square", x) * x end
function nn.reciprocal(x) return in_fp32(function(a) return 1 / a end, need_tensor("reciprocal", x)) end
function nn.positive(x) return need_tensor("positive", x) end
function nn.deg2rad(x) return need_tensor("deg2rad", x) * (math.pi / 180) end
function nn.rad2deg(x) return need_tensor("rad2deg", x) * (180 / math.pi) end

-- sin(πx) / πx, 1 where x is 0, as torch.sinc.
function nn.sinc(x)
  return in_fp32(function(a)
    local zero = nn.eq(a, 0)
    local angle = nn.where(zero, 1, a * math.pi)
    return nn.where(zero, 1, nn.sin(angle) / angle)
  end, need_tensor("sinc", x))
end

-- log(x / (1 - x)), as torch.logit. With eps, x is held within eps and 1 - eps.
function nn.logit(x, eps)
  eps = options("nn.logit", "eps", {}, eps)
  return in_fp32(function(a)
    if eps then a = nn.clamp(a, eps, 1 - eps) end
    return (prim.op("logit", { a = a }))
  end, need_tensor("logit", x))
end

-- log(e^x + e^y), x log y (0 where x is 0), the length of (x, y) and the angle of the point (y, x), as torch.NAME. x and
-- y are tensors or numbers, at least one a tensor. Shapes broadcast.
for _, name in ipairs { "logaddexp", "xlogy", "hypot", "atan2" } do
  nn[name] = function(x, y) return in_fp32(function(a, b) return prim.pointwise(name, a, b) end, x, y) end
end

-- What f gives for two tensors or numbers: whole numbers for whole numbers, as far as fp32 holds them.
local function quotient(f, x, y)
  local integers = not (is_tensor(x) and is_float(x) or is_tensor(y) and is_float(y) or math.type(x) == "float" or math.type(y) == "float")
  local result = in_fp32(function(a, b)
    if not is_tensor(b) then b = prim.full({}, b, "fp32") end
    return f(a, b, prim.pointwise("fmod", a, b))
  end, x, y)
  return integers and prim.cast(result, "int32") or result
end

-- Do the rest and the divisor have different signs?
local function differ(rest, b) return nn.lt(nn.sign(rest) * nn.sign(b), 0) end

-- What whole y leave of x, with the sign of x (fmod) or of y (remainder), and how many whole y x holds, rounded down,
-- without a gradient (floor_divide), as torch.NAME. x and y are tensors or numbers. Shapes broadcast.
function nn.fmod(x, y) return quotient(function(_, _, rest) return rest end, x, y) end
function nn.remainder(x, y)
  return quotient(function(_, b, rest) return nn.where(differ(rest, b), rest + b, rest) end, x, y)
end
function nn.floor_divide(x, y)
  return nn.detach(quotient(function(a, b, rest)
    local n = (a - rest) / b
    n = nn.where(differ(rest, b), n - 1, n)
    local floor = nn.floor(n)
    floor = nn.where(nn.gt(n - floor, 0.5), floor + 1, floor)
    return nn.where(nn.eq(b, 0), a / b, floor)
  end, x, y))
end

-- x + weight (y - x), as torch.lerp. weight is a number or a tensor.
function nn.lerp(x, y, weight)
  return in_fp32(function(a, b, w)
    local from_a, from_b = a + w * (b - a), b - (b - a) * (1 - w)
    if is_tensor(w) then return nn.where(nn.lt(nn.abs(w), 0.5), from_a, from_b) end
    return math.abs(w) < 0.5 and from_a or from_b
  end, need_tensor("lerp", x), need_tensor("lerp", y), weight)
end

-- x + value a b and x + value a / b, value 1 by default, as torch.NAME.
function nn.addcmul(x, a, b, value)
  value = options("nn.addcmul", "value", { 1 }, value)
  return in_fp32(function(c, p, q) return c + value * (p * q) end, need_tensor("addcmul", x), a, b)
end
function nn.addcdiv(x, a, b, value)
  value = options("nn.addcdiv", "value", { 1 }, value)
  return in_fp32(function(c, p, q) return c + value * (p / q) end, need_tensor("addcdiv", x), a, b)
end

-- 0 where x is below 0, 1 where it is above, else `values`, as torch.heaviside. There is no gradient.
function nn.heaviside(x, values)
  return nn.detach(nn.where(nn.eq(x, 0), values, nn.cast(nn.gt(x, 0), x)))
end

-- Of two, the one that is no NaN, or what f makes of both.
local function of_numbers(f, x, y)
  return in_fp32(function(a, b) return nn.where(nn.isnan(b), a, nn.where(nn.isnan(a), b, f(a, b))) end, x, y)
end

-- The larger and the smaller of two; a NaN counts as missing. As torch.NAME.
function nn.fmax(x, y) return of_numbers(nn.maximum, x, y) end
function nn.fmin(x, y) return of_numbers(nn.minimum, x, y) end

-- x, at least low and at most high, as torch.NAME. low and high are numbers or tensors.
function nn.clamp_min(x, low) return is_tensor(low) and nn.maximum(x, low) or nn.clamp(x, low) end
function nn.clamp_max(x, high) return is_tensor(high) and nn.minimum(x, high) or nn.clamp(x, nil, high) end

-- ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Is an element NaN, finite, infinite, ∞, -∞? As torch.NAME.
function nn.isnan(x) return nn.ne(need_tensor("isnan", x), x) end
function nn.isfinite(x) return nn.eq(need_tensor("isfinite", x) - x, 0) end
function nn.isinf(x) return nn.eq(nn.abs(need_tensor("isinf", x)), math.huge) end
function nn.isposinf(x) return nn.eq(need_tensor("isposinf", x), math.huge) end
function nn.isneginf(x) return nn.eq(need_tensor("isneginf", x), -math.huge) end

-- A bool: is the element other than 0?
local function truth(what, x)
  return need_tensor(what, x).dtype == "bool" and x or nn.ne(x, 0)
end

-- and, or, not, exclusive or of bools, or of whether elements are other than 0, as torch.NAME. Shapes broadcast.
function nn.logical_and(x, y) x, y = truth("logical_and", x), truth("logical_and", y) return nn.where(x, y, x) end
function nn.logical_or(x, y) x, y = truth("logical_or", x), truth("logical_or", y) return nn.where(x, x, y) end
function nn.logical_not(x) return nn.eq(truth("logical_not", x), 0) end
function nn.logical_xor(x, y) return nn.ne(truth("logical_xor", x), truth("logical_xor", y)) end

-- |x - y| <= atol + rtol |y|, or equal, for each element (isclose) or all (allclose), as torch.NAME; are all elements
-- equal (equal)? rtol: 1e-5, atol: 1e-8.
function nn.isclose(x, y, rtol, atol, equal_nan)
  rtol, atol, equal_nan = options("nn.isclose", "rtol atol equal_nan", { 1e-5, 1e-8, false }, rtol, atol, equal_nan)
  x, y = prim.floating(need_tensor("isclose", x)), prim.floating(need_tensor("isclose", y))
  local apart = nn.abs(x - y)
  local close = nn.logical_or(nn.eq(x, y), nn.logical_and(nn.le(apart, atol + rtol * nn.abs(y)), nn.isfinite(apart)))
  return equal_nan and nn.logical_or(close, nn.logical_and(nn.isnan(x), nn.isnan(y))) or close
end
function nn.allclose(x, y, rtol, atol, equal_nan) return nn.all(nn.isclose(x, y, rtol, atol, equal_nan)) end
function nn.equal(x, y) return nn.all(nn.eq(x, y)) end

-- The largest number of x's dtype in its unit: of fp16, of bf16 or of fp32.
local function largest(x)
  local function becomes_infinite(number) return nn.isinf(prim.cast(prim.full({}, number, "fp32"), x)) end
  return nn.where(becomes_infinite(1e30), 65504, nn.where(becomes_infinite(0x1.fffffep127), 0x1.fep127, nn.full({}, 0x1.fffffep127)))
end

-- x with nan (0) for NaN, posinf for ∞ and neginf for -∞ (the largest numbers of its dtype), as torch.nan_to_num.
function nn.nan_to_num(x, nan, posinf, neginf)
  nan, posinf, neginf = options("nn.nan_to_num", "nan posinf neginf", { 0 }, nan, posinf, neginf)
  if not is_float(need_tensor("nan_to_num", x)) then return x end
  return in_fp32(function(a)
    local y = nn.where(nn.isnan(a), nan, a)
    y = nn.where(nn.isposinf(a), posinf or largest(x), y)
    return nn.where(nn.isneginf(a), neginf or -largest(x), y)
  end, x)
end
