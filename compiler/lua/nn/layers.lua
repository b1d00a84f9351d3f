-- nn: layers made of others: norms of groups and channels, padding, windows (pools and convolutions), pixels.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/shapes.lua,
-- nn/network.lua, nn/statistics.lua.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, fail, describe, list_of, is_tensor = prim.nn, prim.refuse, prim.describe, prim.list_of, prim.is_tensor
local in_fp32, need_tensor, need_size = prim.in_fp32, prim.need_tensor, prim.need_size

-- ── more layers, as torch.nn.functional.NAME ─────────────────────────────────────────────────────────────────────────

-- The rows of weight [V,D] by index int32 [B,N], over N: their mean, "sum" or "max", [B,D].
function nn.embedding_bag(index, weight, mode)
  local rows = nn.embedding(index, weight)
  if mode == nil or mode == "mean" then return nn.mean(rows, -2) end
  if mode == "sum" then return nn.sum(rows, -2) end
  if mode == "max" then return nn.max(rows, -2) end
  fail(nil, 'embedding_bag: the mode is "mean" (the default), "sum" or "max", not %s', describe(mode))
end

-- x1 [...,n] W y [...,m] + bias for each matrix of weight [out,n,m]: [...,out]. bias [out] may be nil.
function nn.bilinear(x1, x2, weight, bias)
  local out, n, m = table.unpack(need_tensor("bilinear", weight).shape)
  local products = nn.matmul(need_tensor("bilinear", x1), nn.reshape(nn.permute(weight, 1, 0, 2), n, out * m))
  local y = nn.sum(nn.unflatten(products, -1, { out, m }) * nn.unsqueeze(x2, -2), -1)
  return bias and y + bias or y
end

-- A vector [C] beside x [N,C,...].
local function for_channels(x, v)
  local shape = {}
  for d = 1, x.ndim do shape[d] = d == 2 and x:size(1) or 1 end
  return nn.reshape(v, shape)
end

-- x [N,C,...] with the mean 0 and the variance 1 in each sample, over the channels of each of `groups` and all that
-- follows (group_norm), or over what follows alone (instance_norm); times weight [C], plus bias [C], both may be nil. eps:
-- 1e-5.
function nn.group_norm(x, groups, weight, bias, eps)
  local n, k = need_tensor("group_norm", x):size(0), need_size("group_norm", "the number of groups", groups)
  if x.ndim < 2 or x:size(1) % k ~= 0 then
    fail(nil, "group_norm: the channels of x %s, dimension 1, are no multiple of %d groups", tostring(x), k)
  end
  return in_fp32(function(a, w, b)
    local y = nn.reshape(nn.layer_norm(nn.reshape(a, n, k, -1), nil, nil, eps), a.shape)
    if w then y = y * for_channels(a, w) end
    return b and y + for_channels(a, b) or y
  end, x, weight, bias)
end
function nn.instance_norm(x, weight, bias, eps)
  return nn.group_norm(x, need_tensor("instance_norm", x):size(1), weight, bias, eps)
end

-- x [N,C,...] over (k + alpha mean of the squares of `size` neighbouring channels) ^ beta. alpha: 1e-4, beta: 0.75, k: 1.
function nn.local_response_norm(x, size, alpha, beta, k)
  local n = need_size("local_response_norm", "size", size)
  local a, b, c = prim.take_options("nn.local_response_norm", "alpha beta k", { 1e-4, 0.75, 1 }, alpha, beta, k)
  return in_fp32(function(v)
    local channels, sum = v:size(1), nil
    local squares = v * v
    for i = 0, n - 1 do
      local from = i - n // 2
      local low, high = math.max(0, from), math.min(channels, channels + from)
      if low < high then
        local zeros = { nn.zeros_like(squares), nn.zeros_like(squares) }
        local parts = { nn.slice(squares, 1, low, high) }
        if from < 0 then table.insert(parts, 1, nn.slice(zeros[1], 1, 0, -from)) end
        if from > 0 then parts[#parts + 1] = nn.slice(zeros[2], 1, 0, from) end
        local part = nn.concat(parts, 1)
        sum = sum and sum + part or part
      end
    end
    return v / (sum * (a / n) + c) ^ b
  end, need_tensor("local_response_norm", x))
end

-- Each channel of x [N,C,...] is 0 with probability p (0.5), else over 1 - p. Outside of training: x.
for _, name in ipairs { "dropout1d", "dropout2d", "dropout3d" } do
  nn[name] = function(x, p)
    local shape = need_tensor(name, x).shape
    for d = 3, #shape do shape[d] = 1 end
    return prim.training_mode() and x * nn.cast(nn.dropout(nn.ones(shape), p or 0.5), x) or x
  end
end

-- Elements become selu's lowest value with probability p (0.5), then all are scaled and moved so that a mean of 0 and a
-- variance of 1 stay. Outside of training: x.
function nn.alpha_dropout(x, p)
  local q = prim.need_probability("alpha_dropout", p or 0.5)
  if q == 0 or not prim.training_mode() then return need_tensor("alpha_dropout", x) end
  local low = -1.7580993408473766
  local a = ((low * low * q + 1) * (1 - q)) ^ -0.5
  return in_fp32(function(v)
    local kept = nn.gt(nn.dropout(nn.ones(v.shape), q), 0)
    return nn.where(kept, v, low) * a - a * low * q
  end, need_tensor("alpha_dropout", x))
end

-- x with elements added before and behind its dimensions: pad = { before, behind } of the last dimension, then of the one
-- before it. mode: "constant" (value, 0), "reflect", "replicate" or "circular". Negative numbers take elements away.
function nn.pad(x, pad, mode, value)
  local how = mode or "constant"
  for i = 1, #list_of(pad), 2 do
    local k, before, behind = need_tensor("pad", x).ndim - (i + 1) // 2, pad[i], pad[i + 1]
    local n = x:size(k)
    if before < 0 or behind < 0 then
      x = nn.slice(x, k, math.max(0, -before), n - math.max(0, -behind))
      before, behind, n = math.max(0, before), math.max(0, behind), x:size(k)
    end
    local index = nn.arange(n + before + behind) - before
    if how == "constant" then
      local function filler(size)
        local shape = x.shape
        shape[k + 1] = size
        local full = nn.full(shape, value or 0, prim.is_float(x) and "fp32" or x.dtype)
        return prim.is_float(x) and nn.cast(full, x) or full
      end
      local parts = { x }
      if before > 0 then table.insert(parts, 1, filler(before)) end
      if behind > 0 then parts[#parts + 1] = filler(behind) end
      x = nn.concat(parts, k)
    elseif how == "reflect" then
      x = nn.index_select(x, k, (n - 1) - nn.abs((n - 1) - nn.abs(index)))
    elseif how == "replicate" then
      x = nn.index_select(x, k, nn.clamp(index, 0, n - 1))
    elseif how == "circular" then
      index = nn.where(nn.lt(index, 0), index + n, index)
      x = nn.index_select(x, k, nn.where(nn.ge(index, n), index - n, index))
    else
      fail(nil, 'pad: the mode is "constant" (the default), "reflect", "replicate" or "circular", not %s', describe(mode))
    end
  end
  return x
end

-- ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- A number for each of n dimensions: from a list, the one given, or the default, which may be a list too.
local function for_each(what, name, x, n, default)
  local out = {}
  for i = 1, n do
    local number = x
    if number == nil then number = default end
    if type(number) == "table" then number = number[i] end
    out[i] = prim.need_integer(what, name, number)
  end
  return out
end

-- For each place in a window along dimension k of x, the elements at this place of all windows. The windows lie `stride`
-- apart, the places `dilation`.
local function places(what, x, k, size, stride, dilation)
  local n = x:size(k)
  local reach = dilation * (size - 1) + 1
  local count = (n - reach) // stride + 1
  if count < 1 then fail(nil, "%s: dimension %d of %s is smaller than the window, which spans %d", what, k, tostring(x), reach) end
  local out = {}
  for i = 0, size - 1 do
    local from = i * dilation
    if stride == 1 then
      out[i + 1] = nn.slice(x, k, from, from + count)
    else
      out[i + 1] = nn.index_select(x, k, nn.arange(count) * stride + from)
    end
  end
  return out
end

-- x with so much filler before and behind each of its last dimensions.
local function padded(x, padding, filler)
  local pad, any = {}, false
  for i = #padding, 1, -1 do
    pad[#pad + 1], pad[#pad + 2] = padding[i], padding[i]
    any = any or padding[i] ~= 0
  end
  return any and nn.pad(x, pad, "constant", filler) or x
end

-- Pools the last n dimensions of x with f, which makes one tensor of a list, dimension by dimension.
local function pool(what, x, n, given, filler, f)
  local size = for_each(what, "kernel_size", given[1], n)
  local stride = for_each(what, "stride", given[2], n, size)
  x = padded(need_tensor(what, x), for_each(what, "padding", given[3], n, 0), filler)
  for i = n, 1, -1 do x = f(places(what, x, x.ndim - n + i - 1, size[i], stride[i], 1)) end
  return x
end

-- The first of the largest, whose gradient is its own.
local function first_largest(list)
  local best = list[1]
  for i = 2, #list do best = nn.where(nn.logical_or(nn.gt(list[i], best), nn.isnan(list[i])), list[i], best) end
  return best
end

local function sum_of(list)
  local sum = list[1]
  for i = 2, #list do sum = sum + list[i] end
  return sum
end

local function max_pool(n, x, ...)
  local given = { ... }
  return in_fp32(function(a) return pool("max_pool" .. n .. "d", a, n, given, -math.huge, first_largest) end, x)
end
local function avg_pool(n, x, kernel_size, ...)
  local what, given, volume = "avg_pool" .. n .. "d", { kernel_size, ... }, 1
  for _, size in ipairs(for_each(what, "kernel_size", kernel_size, n)) do volume = volume * size end
  return in_fp32(function(a) return pool(what, a, n, given, 0, sum_of) / volume end, x)
end
local function lp_pool(n, x, p, ...)
  local given = { ... }
  return in_fp32(function(a) return nn.relu(pool("lp_pool" .. n .. "d", a ^ p, n, given, 0, sum_of)) ^ (1 / p) end, x)
end

-- The largest element, the mean, or the norm (Σ x^p)^(1/p) of each window of the last one, two or three dimensions of x.
-- kernel_size, stride (the kernel's size) and padding (0) are numbers, or lists with one for each dimension.
function nn.max_pool1d(x, kernel_size, stride, padding) return max_pool(1, x, kernel_size, stride, padding) end
function nn.max_pool2d(x, kernel_size, stride, padding) return max_pool(2, x, kernel_size, stride, padding) end
function nn.max_pool3d(x, kernel_size, stride, padding) return max_pool(3, x, kernel_size, stride, padding) end
function nn.avg_pool1d(x, kernel_size, stride, padding) return avg_pool(1, x, kernel_size, stride, padding) end
function nn.avg_pool2d(x, kernel_size, stride, padding) return avg_pool(2, x, kernel_size, stride, padding) end
function nn.avg_pool3d(x, kernel_size, stride, padding) return avg_pool(3, x, kernel_size, stride, padding) end
function nn.lp_pool1d(x, p, kernel_size, stride) return lp_pool(1, x, p, kernel_size, stride) end
function nn.lp_pool2d(x, p, kernel_size, stride) return lp_pool(2, x, p, kernel_size, stride) end
function nn.lp_pool3d(x, p, kernel_size, stride) return lp_pool(3, x, p, kernel_size, stride) end

local function mean_along(x, k) return nn.mean(x, k, true) end

-- The first of the largest along k, however many there are.
local function first_largest_along(x, k)
  local n, shape = x:size(k), {}
  for d = 1, x.ndim do shape[d] = d == k + 1 and n or 1 end
  local hit = nn.logical_or(nn.eq(x, nn.detach(nn.max(x, k, true))), nn.isnan(x))
  local from_behind = nn.where(hit, nn.reshape(n - nn.arange(n), shape), 0)
  return nn.sum(nn.where(nn.eq(from_behind, nn.max(from_behind, k, true)), x, 0), k, true)
end

local function adaptive_pool(kind, n, f, x, output_size)
  local what = "adaptive_" .. kind .. "_pool" .. n .. "d"
  local size = for_each(what, "output_size", output_size, n)
  return in_fp32(function(a)
    for i = n, 1, -1 do
      local k, list = a.ndim - n + i - 1, {}
      local length, count = a:size(k), size[i]
      for w = 0, count - 1 do
        list[w + 1] = f(nn.slice(a, k, w * length // count, ((w + 1) * length + count - 1) // count), k)
      end
      a = prim.join(list, k)
    end
    return a
  end, need_tensor(what, x))
end

-- The mean and the largest of as many windows as output_size says, of the last one, two or three dimensions of x.
-- output_size is a number, or a list with one for each dimension.
function nn.adaptive_avg_pool1d(x, output_size) return adaptive_pool("avg", 1, mean_along, x, output_size) end
function nn.adaptive_avg_pool2d(x, output_size) return adaptive_pool("avg", 2, mean_along, x, output_size) end
function nn.adaptive_avg_pool3d(x, output_size) return adaptive_pool("avg", 3, mean_along, x, output_size) end
function nn.adaptive_max_pool1d(x, output_size) return adaptive_pool("max", 1, first_largest_along, x, output_size) end
function nn.adaptive_max_pool2d(x, output_size) return adaptive_pool("max", 2, first_largest_along, x, output_size) end
function nn.adaptive_max_pool3d(x, output_size) return adaptive_pool("max", 3, first_largest_along, x, output_size) end

-- The windows of the last n dimensions of x: a tensor for each place in a window, the last dimension's places first.
local function windows(what, x, n, size, stride, dilation)
  local list = { x }
  for i = 1, n do
    local finer = {}
    for _, y in ipairs(list) do
      for _, z in ipairs(places(what, y, x.ndim - n + i - 1, size[i], stride[i], dilation[i])) do finer[#finer + 1] = z end
    end
    list = finer
  end
  return list
end

-- The patches of x [N,C,...], what each place in a window takes: [N,C,places,...]. Their gradients are summed in fp32.
local function patches(what, x, n, size, stride, padding, dilation)
  return in_fp32(function(a)
    local list = windows(what, padded(a, padding, 0), n, size, stride, dilation)
    for i, y in ipairs(list) do list[i] = nn.unsqueeze(y, 2) end
    return prim.join(list, 2)
  end, need_tensor(what, x))
end

-- The patches of an image x [N,C,H,W]: [N, C · size of the kernel, number of patches]. dilation: 1, padding: 0, stride: 1.
function nn.unfold(x, kernel_size, dilation, padding, stride)
  local size, apart = for_each("unfold", "kernel_size", kernel_size, 2), for_each("unfold", "dilation", dilation, 2, 1)
  local y = patches("unfold", x, 2, size, for_each("unfold", "stride", stride, 2, 1), for_each("unfold", "padding", padding, 2, 0), apart)
  return nn.flatten(nn.flatten(y, 3), 1, 2)
end

local function convolution(n, x, weight, bias, stride, padding, dilation, groups)
  local what = "conv" .. n .. "d"
  local steps, apart = for_each(what, "stride", stride, n, 1), for_each(what, "dilation", dilation, n, 1)
  local out, size, g = need_tensor(what, weight):size(0), {}, need_size(what, "groups", groups or 1)
  for i = 1, n do size[i] = weight.shape[i + 2] end
  if need_tensor(what, x).ndim ~= n + 2 or weight.ndim ~= n + 2 or x:size(1) ~= g * weight:size(1) or out % g ~= 0 then
    fail(nil, "%s: x %s must be [N,C,...] with the C channels of the weight %s, [out, C / %d, kernel...]", what, tostring(x), tostring(weight), g)
  end
  local all = patches(what, x, n, size, steps, for_each(what, "padding", padding, n, 0), apart)
  all = nn.movedim(all, { 1, 2 }, { -2, -1 }) -- [N,...,C,places]
  local rows, results = nn.reshape(weight, out, -1), {}
  local function of_group(v, k, i)
    local each = v:size(k) // g
    return g == 1 and v or nn.slice(v, k, (i - 1) * each, i * each)
  end
  for i = 1, g do
    results[i] = nn.linear(nn.flatten(of_group(all, n + 1, i), -2, -1), of_group(rows, 0, i), bias and of_group(bias, 0, i))
  end
  return nn.movedim(prim.join(results, n + 1), -1, 1)
end

-- The convolution of x [N,C,...] with weight [out, C / groups, kernel...] plus bias [out], which may be nil: patches times
-- the weight. stride: 1, padding: 0, dilation: 1, groups: 1.
function nn.conv1d(x, weight, bias, stride, padding, dilation, groups)
  return convolution(1, x, weight, bias, stride, padding, dilation, groups)
end
function nn.conv2d(x, weight, bias, stride, padding, dilation, groups)
  return convolution(2, x, weight, bias, stride, padding, dilation, groups)
end
function nn.conv3d(x, weight, bias, stride, padding, dilation, groups)
  return convolution(3, x, weight, bias, stride, padding, dilation, groups)
end

-- ── sums of windows ──────────────────────────────────────────────────────────────────────────────────────────────────

-- The sums that windows of an image make: rows [places,windows,N,C] go where each place of each window lies in [N,C,...] of
-- `size` after the padding is cut off. They are added up in fp32, window by window. count: of windows, along each dimension.
local function summed_windows(rows, n, kernel, count, size, stride, padding, dilation)
  local whole, wide, total, index = {}, 1, 1, 0
  for i = 1, n do
    whole[i] = math.max(size[i] + 2 * padding[i], (count[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1)
    total = total * whole[i]
  end
  local batch, channels = rows:size(-2), rows:size(-1)
  for i = n, 1, -1 do
    local places_shape, windows_shape = {}, {}
    for d = 1, 2 * n do
      places_shape[d], windows_shape[d] = d == i and kernel[i] or 1, d == n + i and count[i] or 1
    end
    local at = nn.reshape(nn.arange(kernel[i]) * dilation[i], places_shape) + nn.reshape(nn.arange(count[i]) * stride[i], windows_shape)
    index, wide = at * wide + index, wide * whole[i]
  end
  local y = nn.index_add(nn.zeros({ total, batch * channels }), 0, nn.reshape(index, -1), nn.reshape(rows, -1, batch * channels))
  table.move({ batch, channels }, 1, 2, n + 1, whole)
  y = nn.movedim(nn.reshape(y, whole), { -2, -1 }, { 0, 1 })
  for i = 1, n do y = nn.slice(y, i + 1, padding[i], padding[i] + size[i]) end
  return y
end

-- The sums of patches x [N, C · size of the kernel, number of patches], as nn.unfold makes them, in an image [N,C,H,W] of
-- output_size. dilation: 1, padding: 0, stride: 1.
function nn.fold(x, output_size, kernel_size, dilation, padding, stride)
  local size, kernel = for_each("fold", "output_size", output_size, 2), for_each("fold", "kernel_size", kernel_size, 2)
  local apart, pad, step = for_each("fold", "dilation", dilation, 2, 1), for_each("fold", "padding", padding, 2, 0), for_each("fold", "stride", stride, 2, 1)
  local count = {}
  for i = 1, 2 do count[i] = (size[i] + 2 * pad[i] - apart[i] * (kernel[i] - 1) - 1) // step[i] + 1 end
  local each = kernel[1] * kernel[2]
  if need_tensor("fold", x).ndim ~= 3 or x:size(1) % each ~= 0 or x:size(2) ~= count[1] * count[2] then
    fail(nil, "fold: x %s must be [N, C · %d, %d]: the windows of an image of %d by %d", tostring(x), each, count[1] * count[2], size[1], size[2])
  end
  return in_fp32(function(a)
    local rows = nn.permute(nn.unflatten(a, 1, { x:size(1) // each, each }), 2, 3, 0, 1)
    return summed_windows(rows, 2, kernel, count, size, step, pad, apart)
  end, x)
end

local function transposed_convolution(n, x, weight, bias, stride, padding, output_padding, groups, dilation)
  local what = "conv_transpose" .. n .. "d"
  local step, pad, apart = for_each(what, "stride", stride, n, 1), for_each(what, "padding", padding, n, 0), for_each(what, "dilation", dilation, n, 1)
  local more, g = for_each(what, "output_padding", output_padding, n, 0), need_size(what, "groups", groups or 1)
  if need_tensor(what, x).ndim ~= n + 2 or need_tensor(what, weight).ndim ~= n + 2 or x:size(1) ~= weight:size(0) or x:size(1) % g ~= 0 then
    fail(nil, "%s: x %s must be [N,C,...] with the C channels of the weight %s, [C, out / %d, kernel...]", what, tostring(x), tostring(weight), g)
  end
  local kernel, count, size, places_of, results = {}, {}, {}, 1, {}
  for i = 1, n do
    kernel[i], count[i] = weight.shape[i + 2], x.shape[i + 2]
    size[i], places_of = (count[i] - 1) * step[i] - 2 * pad[i] + apart[i] * (kernel[i] - 1) + more[i] + 1, places_of * kernel[i]
  end
  local each, out = x:size(1) // g, weight:size(1)
  for i = 1, g do
    local function own(v, k) return g == 1 and v or nn.slice(v, k, (i - 1) * each, i * each) end
    local rows = nn.permute(nn.flatten(own(x, 1), 2), 2, 0, 1) -- [windows,N,C]
    local products = nn.unflatten(nn.matmul(rows, nn.reshape(own(weight, 0), each, -1)), -1, { out, places_of })
    results[i] = in_fp32(function(a, b)
      local y = summed_windows(nn.permute(a, 3, 0, 1, 2), n, kernel, count, size, step, pad, apart)
      return b and y + for_channels(y, b) or y
    end, products, bias and nn.slice(bias, 0, (i - 1) * out, i * out))
  end
  return prim.join(results, 1)
end

-- The transposed convolution of x [N,C,...] with weight [C, out / groups, kernel...] plus bias [out], which may be nil: each
-- element times the weight, and the sums of what overlaps. stride: 1, padding: 0, output_padding: 0, groups: 1, dilation: 1.
function nn.conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation)
  return transposed_convolution(1, x, weight, bias, stride, padding, output_padding, groups, dilation)
end
function nn.conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation)
  return transposed_convolution(2, x, weight, bias, stride, padding, output_padding, groups, dilation)
end
function nn.conv_transpose3d(x, weight, bias, stride, padding, output_padding, groups, dilation)
  return transposed_convolution(3, x, weight, bias, stride, padding, output_padding, groups, dilation)
end

-- ── pixels ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- x [..., C r², H, W] as [..., C, H r, W r], and back; x [N, C, ...] with its channels, in `groups`, taken in turns.
function nn.pixel_shuffle(x, r)
  local shape = need_tensor("pixel_shuffle", x).shape
  local w, h, c = table.remove(shape), table.remove(shape), table.remove(shape)
  if c % (r * r) ~= 0 then fail(nil, "pixel_shuffle: the %d channels of %s are no multiple of %d", c, tostring(x), r * r) end
  local y = nn.permute(nn.reshape(x, -1, c // (r * r), r, r, h, w), 0, 1, 4, 2, 5, 3)
  table.move({ c // (r * r), h * r, w * r }, 1, 3, #shape + 1, shape)
  return nn.reshape(y, shape)
end
function nn.pixel_unshuffle(x, r)
  local shape = need_tensor("pixel_unshuffle", x).shape
  local w, h, c = table.remove(shape), table.remove(shape), table.remove(shape)
  if h % r ~= 0 or w % r ~= 0 then fail(nil, "pixel_unshuffle: height and width of %s are no multiples of %d", tostring(x), r) end
  local y = nn.permute(nn.reshape(x, -1, c, h // r, r, w // r, r), 0, 1, 3, 5, 2, 4)
  table.move({ c * r * r, h // r, w // r }, 1, 3, #shape + 1, shape)
  return nn.reshape(y, shape)
end
function nn.channel_shuffle(x, groups)
  local c = need_tensor("channel_shuffle", x):size(1)
  if c % groups ~= 0 then fail(nil, "channel_shuffle: the %d channels of %s are no multiple of %d groups", c, tostring(x), groups) end
  return nn.flatten(nn.transpose(nn.unflatten(x, 1, { groups, c // groups }), 1, 2), 1, 2)
end

-- x [N,C,...] with other sizes: of the list or number `size`, or scale_factor times the old ones. mode: "nearest" (the
-- default), or "linear", "bilinear" or "trilinear", all the same, between neighbours; with align_corners from corner to
-- corner.
function nn.interpolate(x, options)
  local o, n = options or {}, need_tensor("interpolate", x).ndim - 2
  prim.check_keys("nn.interpolate", o, "size scale_factor mode align_corners")
  local mode = o.mode or "nearest"
  if mode ~= "nearest" and mode ~= "linear" and mode ~= "bilinear" and mode ~= "trilinear" then
    fail(nil, 'interpolate: the mode is "nearest" (the default), "linear", "bilinear" or "trilinear", not %s', describe(mode))
  end
  return in_fp32(function(a)
    for i = 1, n do
      local k, factor = i + 1, type(o.scale_factor) == "table" and o.scale_factor[i] or o.scale_factor
      local old = a:size(k)
      local new = factor and math.floor(old * factor) or for_each("interpolate", "size", o.size, n)[i]
      local at = nn.arange(new, "fp32")
      if mode == "nearest" then
        a = nn.index_select(a, k, nn.cast(nn.floor(at * (factor and 1 / factor or old / new)), "int32"))
      else
        if prim.need_boolean("interpolate", "align_corners", o.align_corners, false) then
          at = at * (new > 1 and (old - 1) / (new - 1) or 0)
        else
          at = nn.clamp((at + 0.5) * (factor and 1 / factor or old / new) - 0.5, 0)
        end
        local shape = {}
        for d = 1, a.ndim do shape[d] = d == k + 1 and new or 1 end
        local low = nn.clamp(nn.floor(at), 0, old - 1)
        local part = nn.reshape(at - low, shape)
        local left, right = nn.index_select(a, k, nn.cast(low, "int32")), nn.index_select(a, k, nn.cast(nn.clamp(low + 1, 0, old - 1), "int32"))
        a = left * (1 - part) + right * part
      end
    end
    return a
  end, x)
end

-- nn.interpolate of an image to another size, as torch.nn.functional.upsample.
nn.upsample = nn.interpolate
