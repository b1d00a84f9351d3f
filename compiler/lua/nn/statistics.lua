-- nn: products, variances, norms and questions over dimensions; similarities and distances of vectors.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/functions.lua.
-- Relied on by: nn.lua, which makes the module of it. In 16 bits they compute in fp32 and round once.
local prim = prim
local nn, dim_of, list_of = prim.nn, prim.dim_of, prim.list_of
local in_fp32, need_tensor, options = prim.in_fp32, prim.need_tensor, prim.take_options

-- ── more over dimensions ─────────────────────────────────────────────────────────────────────────────────────────────

-- How many elements of x go into one result over dim.
local function count(what, x, dim)
  local n = 1
  if dim == nil then
    for _, size in ipairs(x.shape) do n = n * size end
    return n
  end
  for _, d in ipairs(list_of(dim)) do n = n * x:size(dim_of(what, x, d)) end
  return n
end

-- √x, whose gradient is 0 where x is 0.
local function root(x)
  local zero = nn.eq(x, 0)
  return nn.where(zero, 0, nn.sqrt(nn.where(zero, 1, x)))
end

-- The largest and the smallest element over dim, with the arguments of sum, as torch.NAME; aminmax gives the smallest and
-- the largest. Equal ones share the gradient.
nn.amax = nn.max
function nn.amin(x, dim, keepdim) return -nn.max(-need_tensor("amin", x), dim, keepdim) end
nn.min = nn.amin
function nn.aminmax(x, dim, keepdim) return nn.amin(x, dim, keepdim), nn.max(x, dim, keepdim) end

-- The sum and the mean over dim of what is not NaN, with the arguments of sum, as torch.NAME.
function nn.nansum(x, dim, keepdim) return nn.sum(nn.where(nn.isnan(x), 0, x), dim, keepdim) end
function nn.nanmean(x, dim, keepdim)
  return in_fp32(function(a)
    return nn.nansum(a, dim, keepdim) / nn.sum(nn.cast(nn.eq(a, a), "fp32"), dim, keepdim)
  end, need_tensor("nanmean", x))
end

-- The product over dim, one dimension or nil for all, as torch.prod. It is made of halves, so that a zero has a gradient.
function nn.prod(x, dim, keepdim)
  keepdim = prim.need_boolean("prod", "keepdim", keepdim, false)
  return in_fp32(function(a)
    local k = dim and dim_of("prod", a, dim) or 0
    if not dim then a = nn.reshape(a, -1) end
    local n = a:size(k)
    while n > 1 do
      local half, odd = n // 2, n % 2 == 1 and nn.slice(a, k, n - 1)
      a = nn.slice(a, k, 0, half) * nn.slice(a, k, half, 2 * half)
      if odd then a = nn.concat({ a, odd }, k) end
      n = n - half
    end
    return keepdim and dim and a or nn.squeeze(a, k)
  end, need_tensor("prod", x))
end

-- The variance of x over dim and its mean. unbiased: correction is 1, else 0.
local function moments(what, x, dim, unbiased, keepdim, correction)
  unbiased, keepdim, correction = options("nn." .. what, "unbiased keepdim correction", { true, false, 1 }, unbiased, keepdim, correction)
  local n = count(what, x, dim)
  local left = n - (unbiased and correction or 0)
  local mean = nn.mean(x, dim, true)
  local apart = x - nn.detach(mean)
  local squares = nn.sum(apart * apart, dim, keepdim)
  return left > 0 and squares / left or squares / prim.full({}, 0, "fp32"), keepdim and mean or nn.mean(x, dim)
end

-- The variance over dim (one dimension, a list, nil for all), and its root: the sum of the squares over n - correction, as
-- torch.NAME; with the mean, as torch.NAME_mean. unbiased: true, keepdim: false, correction: 1.
function nn.var(x, dim, unbiased, keepdim, correction)
  return in_fp32(function(a) return (moments("var", a, dim, unbiased, keepdim, correction)) end, need_tensor("var", x))
end
function nn.std(x, dim, unbiased, keepdim, correction)
  return in_fp32(function(a) return root((moments("std", a, dim, unbiased, keepdim, correction))) end, need_tensor("std", x))
end
function nn.var_mean(x, dim, unbiased, keepdim, correction)
  return in_fp32(function(a) return moments("var_mean", a, dim, unbiased, keepdim, correction) end, need_tensor("var_mean", x))
end
function nn.std_mean(x, dim, unbiased, keepdim, correction)
  return in_fp32(function(a)
    local var, mean = moments("std_mean", a, dim, unbiased, keepdim, correction)
    return root(var), mean
  end, need_tensor("std_mean", x))
end

-- The log of the sum of e^x over dim, with the arguments of sum, as torch.logsumexp.
function nn.logsumexp(x, dim, keepdim)
  return in_fp32(function(a)
    local most = nn.detach(nn.max(a, dim, true))
    most = nn.where(nn.isinf(most), 0, most)
    local sum = nn.log(nn.sum(nn.exp(a - most), dim, true)) + most
    return keepdim and sum or nn.sum(sum, dim)
  end, need_tensor("logsumexp", x))
end

-- Is any element, are all, other than 0, and how many are (int32), over dim, with the arguments of sum, as torch.NAME.
function nn.any(x, dim, keepdim) return nn.gt(nn.max(nn.cast(nn.ne(x, 0), "fp32"), dim, keepdim), 0) end
function nn.all(x, dim, keepdim) return nn.eq(nn.max(nn.cast(nn.eq(x, 0), "fp32"), dim, keepdim), 0) end
function nn.count_nonzero(x, dim) return nn.cast(nn.sum(nn.cast(nn.ne(x, 0), "fp32"), dim), "int32") end

-- Differences of neighbours along dim (the last), n times (1), as torch.diff.
function nn.diff(x, n, dim)
  local times, along = options("nn.diff", "n dim", { 1, -1 }, n, dim)
  local k = dim_of("diff", x, along)
  for _ = 1, times do x = nn.slice(x, k, 1) - nn.slice(x, k, 0, -1) end
  return x
end

-- ── norms, similarities and distances ────────────────────────────────────────────────────────────────────────────────

-- The p-norm over dim of x in at least fp32, whose gradient is 0 where it is 0.
local function norm(x, p, dim, keepdim)
  if p == 2 or p == "fro" then return root(nn.sum(x * x, dim, keepdim)) end
  if p == math.huge then return nn.max(nn.abs(x), dim, keepdim) end
  if p == -math.huge then return nn.amin(nn.abs(x), dim, keepdim) end
  if p == 0 then return nn.sum(nn.cast(nn.ne(x, 0), "fp32"), dim, keepdim) end
  if p == 1 then return nn.sum(nn.abs(x), dim, keepdim) end
  local zero = nn.eq(x, 0)
  local sum = nn.sum(nn.where(zero, 0, nn.where(zero, 1, nn.abs(x)) ^ p), dim, keepdim)
  local none = nn.eq(sum, 0)
  return nn.where(none, 0, nn.where(none, 1, sum) ^ (1 / p))
end

-- The p-norm of x over dim, with the arguments of sum, as torch.norm: p is 2, any number, math.huge or -math.huge. Where
-- it is 0 the gradient is 0.
function nn.norm(x, p, dim, keepdim)
  p, dim, keepdim = options("nn.norm", "p dim keepdim", { nil, nil, false }, p, dim, keepdim)
  return in_fp32(function(a) return norm(a, p or 2, dim, keepdim) end, need_tensor("norm", x))
end

-- The p-norm of x - y, as torch.dist.
function nn.dist(x, y, p) return in_fp32(function(a, b) return norm(a - b, p or 2) end, x, y) end

-- x over its p-norm along dim, which is taken as at least eps, as torch.nn.functional.normalize. p: 2, dim: 1, eps: 1e-12.
function nn.normalize(x, p, dim, eps)
  p, dim, eps = options("nn.normalize", "p dim eps", { nil, 1, 1e-12 }, p, dim, eps)
  return in_fp32(function(a) return a / nn.clamp(norm(a, p or 2, dim, true), eps) end, need_tensor("normalize", x))
end

-- x, at least low, with the gradient of x.
local function raised(x, low) return x + nn.detach(nn.where(nn.lt(x, low), low - x, 0)) end

-- The cosine of the angle between vectors along dim, norms being at least eps, as torch.nn.functional.cosine_similarity.
-- dim: 1, eps: 1e-8. Shapes broadcast.
function nn.cosine_similarity(x, y, dim, eps)
  dim, eps = options("nn.cosine_similarity", "dim eps", { 1, 1e-8 }, dim, eps)
  return in_fp32(function(a, b)
    return nn.sum(a / raised(norm(a, 2, dim, true), eps) * (b / raised(norm(b, 2, dim, true), eps)), dim)
  end, need_tensor("cosine_similarity", x), need_tensor("cosine_similarity", y))
end

-- The p-norm over the last dimension of x - y + eps, as torch.nn.functional.pairwise_distance. p: 2, eps: 1e-6.
function nn.pairwise_distance(x, y, p, eps, keepdim)
  p, eps, keepdim = options("nn.pairwise_distance", "p eps keepdim", { nil, 1e-6, false }, p, eps, keepdim)
  return in_fp32(function(a, b) return norm(a - b + eps, p or 2, -1, keepdim) end, x, y)
end

-- The p-norms of the differences of all rows of x [...,n,d] and y [...,m,d], [...,n,m], as torch.cdist. p: 2.
function nn.cdist(x, y, p)
  need_tensor("cdist", x)
  need_tensor("cdist", y)
  return in_fp32(function(a, b) return norm(nn.unsqueeze(a, -2) - nn.unsqueeze(b, -3), p or 2, -1) end, x, y)
end

-- The p-norms of the differences of rows i < j of x [n,d], in that order, as torch.nn.functional.pdist. p: 2.
function nn.pdist(x, p)
  local n, rows = need_tensor("pdist", x):size(0), {}
  return in_fp32(function(a)
    for i = 0, n - 2 do rows[i + 1] = norm(nn.slice(a, 0, i, i + 1) - nn.slice(a, 0, i + 1), p or 2, -1) end
    while #rows > 1 do -- a concat takes sixteen
      local fewer = {}
      for i = 1, #rows, 16 do fewer[#fewer + 1] = nn.concat({ table.unpack(rows, i, math.min(i + 15, #rows)) }, 0) end
      rows = fewer
    end
    return rows[1]
  end, x)
end
