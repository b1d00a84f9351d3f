-- nn: sums, products and maxima of all elements so far.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; indexing.lua.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, dim_of, along, floating, need_tensor = prim.nn, prim.op, prim.dim_of, prim.along, prim.floating, prim.need_tensor

-- ── running sums ─────────────────────────────────────────────────────────────────────────────────────────────────────

-- The sum of all elements so far along dim, as torch.cumsum. Floats are summed up in fp32 and rounded once an element;
-- int32 stays int32.
function nn.cumsum(x, dim)
  return (along(x, dim_of("cumsum", x, dim), function(y) return op("scan", { x = y }) end))
end

-- y[i] = a[i] y[i - 1] + x[i] along dim, y[-1] = 0: the recurrence of linear attention, state-space models and gated
-- linear units, in linear work and logarithmic depth. a has x's shape.
function nn.linear_scan(a, x, dim)
  local k = dim_of("linear_scan", x, dim)
  local order = prim.in_dtype_of(x, need_tensor("linear_scan", a))
  if k ~= x.ndim - 1 then order = nn.transpose(order, k, -1) end
  return (along(x, k, function(y) return op("scan", { x = y, a = order }) end))
end

-- The product of all elements so far along dim, in fp32 at least, as torch.cumprod. The gradient is right where
-- elements are 0.
function nn.cumprod(x, dim)
  local k = dim_of("cumprod", x, dim)
  return (along(floating(x), k, function(y)
    local begins = nn.eq(nn.arange(prim.size(y, -1)), 0)
    return op("scan", { x = nn.where(begins, y, 0), a = y })
  end))
end

local function so_far(what, x, dim, smallest)
  local k = dim_of(what, x, dim or -1)
  local indices = along(x, k, function(y) return (op("cummax", { x = y, smallest = smallest })) end)
  return nn.gather(x, k, indices), indices
end

-- The largest element so far along dim (default: the last), and its index (int32), of equal ones the last, as
-- torch.cummax. A NaN stays.
function nn.cummax(x, dim) return so_far("cummax", x, dim, false) end
-- The same of the smallest element, as torch.cummin.
function nn.cummin(x, dim) return so_far("cummin", x, dim, true) end

-- log(exp(x[0]) + ... + exp(x[i])) along dim, as torch.logcumsumexp. Powers are taken beside the largest element so
-- far: the sums are a recurrence, whose factor says how far that has grown.
function nn.logcumsumexp(x, dim)
  local k = dim_of("logcumsumexp", x, dim)
  return (along(floating(x), k, function(y)
    local most, n = nn.maximum(nn.detach((nn.cummax(y))), -3e38), prim.size(y, -1)
    if n == 1 then return y end
    local grown = nn.exp(nn.slice(most, -1, 0, -1) - nn.slice(most, -1, 1))
    local factor = nn.concat({ nn.exp(nn.slice(most, -1, 0, 1) * 0), grown }, -1)
    return nn.log((op("scan", { x = nn.exp(y - most), a = factor }))) + most
  end))
end
