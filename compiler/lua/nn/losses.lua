-- nn: the losses that compare numbers with numbers, and those of embeddings.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/functions.lua,
-- nn/activations.lua, nn/statistics.lua.
-- Relied on by: nn.lua, which makes the module of it. In 16 bits they compute in fp32 and round once.
local prim = prim
local nn, fail, op, describe = prim.nn, prim.refuse, prim.op, prim.describe
local in_fp32, need_tensor = prim.in_fp32, prim.need_tensor

-- ── losses, as torch.nn.functional.NAME ──────────────────────────────────────────────────────────────────────────────

-- The options of a loss, checked: numbers and booleans have the kind of their default.
local function read(what, keys, given, defaults)
  local o = {}
  prim.check_keys(what, given or {}, keys)
  for key, default in pairs(defaults) do o[key] = default end
  for key, x in pairs(given or {}) do
    if type(defaults[key]) == "number" then prim.need_number(what, key, x, "a number") end
    if type(defaults[key]) == "boolean" then prim.need_boolean(what, key, x) end
    o[key] = x
  end
  if o.weight then need_tensor(what, o.weight) end
  if o.pos_weight then need_tensor(what, o.pos_weight) end
  return o
end

-- The mean, the sum or all of the losses of elements.
local function reduced(what, losses, reduction)
  if reduction == nil or reduction == "mean" then return nn.mean(losses) end
  if reduction == "sum" then return nn.sum(losses) end
  if reduction == "none" then return losses end
  fail(nil, '%s: the reduction is "mean" (the default), "sum" or "none", not %s', what, describe(reduction))
end

-- A loss f of tensors, which are in fp32 there; o.weight goes with them.
local function loss(what, o, f, ...)
  for i = 1, select("#", ...) do need_tensor(what, (select(i, ...))) end
  return in_fp32(function(...) return reduced(what, f(...), o.reduction) end, ...)
end

-- A loss times the weight, where there is one.
local function weighted(x, weight) return weight and x * nn.cast(weight, x) or x end

-- |x - y|. Of this and all losses that follow, reduction is "mean" (the default), "sum" or "none": each element's loss.
function nn.l1_loss(x, y, options)
  local o = read("nn.l1_loss", "reduction", options, {})
  return loss("l1_loss", o, function(a, b) return nn.abs(a - b) end, x, y)
end

-- (x - y)², of two tensors of one shape.
function nn.mse_loss(x, y, options)
  local o = read("nn.mse_loss", "reduction", options, {})
  if not prim.same_sizes(need_tensor("mse_loss", x).shape, need_tensor("mse_loss", y).shape) then
    fail(nil, "mse_loss: %s and %s must be of one shape", tostring(x), tostring(y))
  end
  return loss("mse_loss", o, function(a, b) return nn.square(a - b) end, x, y)
end

-- (x - y)² / 2 beta up to |x - y| = beta (1), |x - y| - beta / 2 beyond.
function nn.smooth_l1_loss(x, y, options)
  local o = read("nn.smooth_l1_loss", "reduction beta", options, { beta = 1 })
  if o.beta == 0 then return nn.l1_loss(x, y, { reduction = o.reduction }) end
  return loss("smooth_l1_loss", o, function(a, b) return op("huber", { a = a - b, x = o.beta }) / o.beta end, x, y)
end

-- (x - y)² / 2 up to |x - y| = delta (1), delta (|x - y| - delta / 2) beyond.
function nn.huber_loss(x, y, options)
  local o = read("nn.huber_loss", "reduction delta", options, { delta = 1 })
  return loss("huber_loss", o, function(a, b) return (op("huber", { a = a - b, x = o.delta })) end, x, y)
end

-- -(y log x + (1 - y) log(1 - x)) of probabilities x, logarithms being at least -100. weight: of
-- each element.
function nn.binary_cross_entropy(x, y, options)
  local o = read("nn.binary_cross_entropy", "reduction weight", options, {})
  return loss("binary_cross_entropy", o, function(a, b) return weighted(prim.pointwise("bce", a, b), o.weight) end, x, y)
end

-- The same of logits x. pos_weight: of the positive part, for each class.
function nn.binary_cross_entropy_with_logits(x, y, options)
  local o = read("nn.binary_cross_entropy_with_logits", "reduction weight pos_weight", options, {})
  return loss("binary_cross_entropy_with_logits", o, function(a, b)
    local log = nn.logsigmoid(a)
    if o.pos_weight then log = log * ((nn.cast(o.pos_weight, a) - 1) * b + 1) end
    return weighted((1 - b) * a - log, o.weight)
  end, x, y)
end

-- That of logits x [...,C] and labels y, its mean over the classes. weight: of each class.
function nn.multilabel_soft_margin_loss(x, y, options)
  local o = read("nn.multilabel_soft_margin_loss", "reduction weight", options, {})
  return loss("multilabel_soft_margin_loss", o, function(a, b)
    return nn.mean(weighted(-(b * nn.logsigmoid(a) + (1 - b) * nn.logsigmoid(-a)), o.weight), -1)
  end, x, y)
end

-- log(1 + e^(-y x)), y being -1 or 1.
function nn.soft_margin_loss(x, y, options)
  local o = read("nn.soft_margin_loss", "reduction", options, {})
  return loss("soft_margin_loss", o, function(a, b) return nn.log1p(nn.exp(-b * a)) end, x, y)
end

-- y (log y - x), x being logarithms. log_target: y is logarithms too. reduction = "batchmean": the sum over the
-- size of the batch.
function nn.kl_div(x, y, options)
  local o = read("nn.kl_div", "reduction log_target", options, { log_target = false })
  local batch = o.reduction == "batchmean" and need_tensor("kl_div", x):size(0)
  if batch then o.reduction = "sum" end
  return loss("kl_div", o, function(a, b)
    local all = o.log_target and nn.exp(b) * (b - a) or nn.xlogy(b, b) - b * a
    return batch and all / batch or all
  end, x, y)
end

-- e^x - y x, or x - y log(x + eps) where log_input (true) is false. full: with Stirling's approximation.
-- eps: 1e-8.
function nn.poisson_nll_loss(x, y, options)
  local o = read("nn.poisson_nll_loss", "reduction log_input full eps", options, { log_input = true, full = false, eps = 1e-8 })
  return loss("poisson_nll_loss", o, function(a, b)
    local all = o.log_input and nn.exp(a) - b * a or a - b * nn.log(a + o.eps)
    if not o.full then return all end
    local few = nn.le(b, 1)
    local some = nn.where(few, 1, b)
    return all + nn.where(few, 0, some * nn.log(some) - some + 0.5 * nn.log(2 * math.pi * some))
  end, x, y)
end

-- (log var + (x - y)² / var) / 2, var being at least eps (1e-6). full: with log(2π) / 2.
function nn.gaussian_nll_loss(x, y, var, options)
  local o = read("nn.gaussian_nll_loss", "reduction full eps", options, { full = false, eps = 1e-6 })
  return loss("gaussian_nll_loss", o, function(a, b, v)
    v = v + nn.detach(nn.where(nn.lt(v, o.eps), o.eps - v, 0))
    local apart = a - b
    local all = 0.5 * (nn.log(v) + apart * apart / v)
    return o.full and all + 0.5 * math.log(2 * math.pi) or all
  end, x, y, var)
end

-- x where y is 1, max(0, margin - x) where it is -1. margin: 1.
function nn.hinge_embedding_loss(x, y, options)
  local o = read("nn.hinge_embedding_loss", "reduction margin", options, { margin = 1 })
  return loss("hinge_embedding_loss", o, function(a, b)
    return nn.where(nn.ne(b, 1), nn.clamp(o.margin - a, 0), 0) + nn.where(nn.ne(b, -1), a, 0)
  end, x, y)
end

-- max(0, margin - y (x1 - x2)). margin: 0.
function nn.margin_ranking_loss(x1, x2, y, options)
  local o = read("nn.margin_ranking_loss", "reduction margin", options, { margin = 0 })
  return loss("margin_ranking_loss", o, function(a, b, c) return nn.clamp(o.margin - c * (a - b), 0) end, x1, x2, y)
end

-- Of vectors in the last dimension, 1 - cos where y is 1, max(0, cos - margin) where it is -1.
-- margin: 0.
function nn.cosine_embedding_loss(x1, x2, y, options)
  local o = read("nn.cosine_embedding_loss", "reduction margin", options, { margin = 0 })
  return loss("cosine_embedding_loss", o, function(a, b, c)
    local cos = nn.sum(a * b, -1) / nn.sqrt((nn.sum(a * a, -1) + 1e-12) * (nn.sum(b * b, -1) + 1e-12))
    return nn.where(nn.eq(c, 1), 1 - cos, 0) + nn.where(nn.eq(c, -1), nn.clamp(cos - o.margin, 0), 0)
  end, x1, x2, y)
end

-- max(0, margin + d(anchor, positive) - d(anchor, negative)). d is distance_function, or else pairwise_distance with p (2)
-- and eps (1e-6). swap: the negative is compared with the nearer of the two. margin: 1.
function nn.triplet_margin_with_distance_loss(anchor, positive, negative, options)
  local o = read("nn.triplet_margin_with_distance_loss", "reduction distance_function margin swap", options, { margin = 1, swap = false })
  local d = o.distance_function or nn.pairwise_distance
  return loss("triplet_margin_with_distance_loss", o, function(a, p, n)
    local far = d(a, n)
    if o.swap then far = nn.minimum(far, d(p, n)) end
    return nn.clamp(o.margin + d(a, p) - far, 0)
  end, anchor, positive, negative)
end
function nn.triplet_margin_loss(anchor, positive, negative, options)
  local o = read("nn.triplet_margin_loss", "reduction margin p eps swap", options, { margin = 1, p = 2, eps = 1e-6, swap = false })
  local function d(a, b) return nn.pairwise_distance(a, b, o.p, o.eps) end
  return nn.triplet_margin_with_distance_loss(anchor, positive, negative,
    { reduction = o.reduction, margin = o.margin, swap = o.swap, distance_function = d })
end

-- x where it is above 0, else 0; also of NaN.
local function above_zero(x) return nn.where(nn.gt(x, 0), x, 0) end

-- Of scores x [...,C] and the number of the right class, int32 [...]: the sum over the other classes of max(0, margin -
-- x[y] + x)^p, over C. p is 1 (the default) or 2; margin: 1; weight: of each right class, [C].
function nn.multi_margin_loss(x, y, options)
  local o = read("nn.multi_margin_loss", "reduction p margin weight", options, { p = 1, margin = 1 })
  if o.p ~= 1 and o.p ~= 2 then fail(nil, "multi_margin_loss: p must be 1 or 2, not %s", describe(o.p)) end
  local right = nn.unsqueeze(prim.need_index("multi_margin_loss", y), -1)
  return loss("multi_margin_loss", o, function(a)
    local above = above_zero(o.margin - (nn.gather(a, -1, right) - a))
    if o.p == 2 then above = above * above end
    if o.weight then above = above * nn.gather(nn.expand(nn.cast(o.weight, a), a.shape), -1, right) end
    return nn.sum(nn.where(nn.eq(right, nn.arange(a:size(-1))), 0, above), -1) / a:size(-1)
  end, x)
end

-- Of scores x [...,C] and the numbers of the right classes, int32 [...,C], which end with the first negative one: the sum
-- over pairs of a right class and another of max(0, 1 - x[right] + x[other]), over C.
function nn.multilabel_margin_loss(x, y, options)
  local o = read("nn.multilabel_margin_loss", "reduction", options, {})
  if not prim.same_sizes(need_tensor("multilabel_margin_loss", x).shape, prim.need_index("multilabel_margin_loss", y).shape) then
    fail(nil, "multilabel_margin_loss: %s and %s must be of one shape", tostring(x), tostring(y))
  end
  local counts = nn.eq(nn.cumsum(nn.cast(nn.lt(y, 0), "int32"), -1), 0)
  local right = nn.where(counts, y, 0)
  return loss("multilabel_margin_loss", o, function(a)
    local classes = a:size(-1)
    local hit = nn.logical_and(nn.unsqueeze(counts, -1), nn.eq(nn.unsqueeze(right, -1), nn.arange(classes)))
    local others = nn.eq(nn.amax(nn.cast(hit, "int32"), -2, true), 0)
    local above = above_zero(1 - (nn.unsqueeze(nn.gather(a, -1, right), -1) - nn.unsqueeze(a, -2)))
    return nn.sum(nn.where(nn.logical_and(nn.unsqueeze(counts, -1), others), above, 0), { -2, -1 }) / classes
  end, x)
end
