-- nn: sums, means, maxima and softmax over dimensions.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, dim_of, list_of = prim.nn, prim.op, prim.refuse, prim.dim_of, prim.list_of
local floating, need_tensor, need_boolean = prim.floating, prim.need_tensor, prim.need_boolean

-- ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────

-- dim: one dimension, a list of them, or nil for all. Integers are also reduced in fp32, which is exact below 2^24.
local function reduce(name, x, dim, keepdim)
  local mask = 0
  if need_tensor(name, x).ndim == 0 then return x end
  if dim == nil then
    mask = (1 << x.ndim) - 1
  else
    for _, d in ipairs(list_of(dim)) do mask = mask | 1 << dim_of(name, x, d) end
    if mask == 0 then fail(nil, "%s: the list of dimensions is empty", name) end
  end
  return (op(name, { x = x, over = mask, keep = need_boolean(name, "keepdim", keepdim, false) }))
end

-- The sum over dim: one dimension, a list, or nil for all, as torch.sum. keepdim = true leaves size 1.
function nn.sum(x, dim, keepdim) return reduce("sum", x, dim, keepdim) end
-- The mean over dim, with the arguments of sum, as torch.mean.
function nn.mean(x, dim, keepdim) return reduce("mean", floating(need_tensor("mean", x)), dim, keepdim) end
-- The largest element over dim, with the arguments of sum, as torch.amax. Equal ones share the gradient.
function nn.max(x, dim, keepdim) return reduce("max", x, dim, keepdim) end

-- Softmax over dim (default: the last), as torch.softmax. Another dimension costs two transposes.
function nn.softmax(x, dim)
  return (prim.along(x, dim_of("softmax", x, dim or -1), function(y) return op("softmax", { x = y }) end))
end

-- The logarithm of softmax over dim (default: the last), as torch.log_softmax: in fp32, also of x in 16 bits.
function nn.log_softmax(x, dim)
  local k = dim_of("log_softmax", x, dim or -1)
  x = prim.wide(x)
  local below = x - nn.detach(nn.max(x, k, true))
  return below - nn.log(nn.sum(nn.exp(below), k, true))
end
