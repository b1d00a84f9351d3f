-- nn: sorting, the largest and smallest elements, medians and quantiles.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/views.lua.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, dim_of, along, check_keys = prim.nn, prim.op, prim.refuse, prim.dim_of, prim.along, prim.check_keys
local need_tensor, need_boolean, need_size, need_number = prim.need_tensor, prim.need_boolean, prim.need_size, prim.need_number
local MOST_TOPK = 1024                                     -- SC_MOST_TOPK of schema/workspace.h

-- ── sorting ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The elements of x in ascending order along dim (default: the last), and their indices (int32), as torch.sort with
-- stable = True: of equal ones the first comes first, and a NaN is above all. x holds floats or int32; the values have
-- its gradient. options: descending = true for the largest first. A row is sorted in O(n log n).
function nn.sort(x, dim, options)
  local k, o = dim_of("sort", x, dim or -1), prim.table_of(options)
  check_keys("nn.sort", o, "descending")
  local descending = need_boolean("sort", "descending", o.descending, false)
  return along(x, k, function(y) return op("sort", { x = y, descending = descending }) end)
end

-- The indices of sort alone, with its arguments, as torch.argsort.
function nn.argsort(x, dim, options)
  local _, indices = nn.sort(x, dim, options)
  return indices
end

-- The k largest elements along dim (default: the last), the largest first, and their indices (int32), as torch.topk;
-- largest = false: the smallest, the smallest first. Of equal ones the first comes first, and a NaN is above all. The
-- values have x's gradient. Up to k = 1024 a row is read a few times; more are found by sorting.
function nn.topk(x, k, dim, largest)
  local d = dim_of("topk", x, dim or -1)
  local smallest = not need_boolean("topk", "largest", largest, true)
  if need_size("topk", "k", k) > MOST_TOPK and k <= prim.size(x, d) then
    local values, indices = nn.sort(x, d, { descending = not smallest })
    return nn.slice(values, d, 0, k), nn.slice(indices, d, 0, k)
  end
  return along(x, d, function(y) return op("topk", { x = y, k = k, smallest = smallest }) end)
end

-- Without the dimension d, whose size is 1, unless it is kept.
local function dropped(what, keepdim, d, ...)
  if need_boolean(what, "keepdim", keepdim, false) then return ... end
  local function squeezed(y, ...)
    if y ~= nil then return nn.squeeze(y, d), squeezed(...) end
  end
  return squeezed(...)
end

-- x and the dimension to work along: x as one row, where none is given.
local function row_of(what, x, dim)
  if dim == nil then return nn.reshape(need_tensor(what, x), -1), 0 end
  return x, dim_of(what, x, dim)
end

local function extremum(what, x, dim, keepdim, smallest)
  local y, d = row_of(what, x, dim)
  local _, index = nn.topk(y, 1, d, not smallest)
  return (dropped(what, keepdim, d, index))
end

-- The index (int32) of the largest element along dim, of all elements counted in one row without a dim, as
-- torch.argmax. Of equal ones it is the first; a NaN is above all. keepdim = true leaves size 1.
function nn.argmax(x, dim, keepdim) return extremum("argmax", x, dim, keepdim, false) end
-- The same of the smallest element, as torch.argmin; a NaN is below all.
function nn.argmin(x, dim, keepdim)
  local floats = prim.is_float(need_tensor("argmin", x))
  return extremum("argmin", floats and -x or x, dim, keepdim, not floats)
end

-- ── one of the sorted elements ───────────────────────────────────────────────────────────────────────────────────────

-- The k-th smallest element along dim (default: the last), k from 1 on, and its index (int32), as torch.kthvalue.
function nn.kthvalue(x, k, dim, keepdim)
  local d = dim_of("kthvalue", x, dim or -1)
  if need_size("kthvalue", "k", k) > prim.size(x, d) then
    fail(nil, "kthvalue: k = %d, but dimension %d of %s has %d elements", k, d, tostring(x), prim.size(x, d))
  end
  local values, indices = nn.topk(x, k, d, false)
  return dropped("kthvalue", keepdim, d, nn.slice(values, d, k - 1, k), nn.slice(indices, d, k - 1, k))
end

-- The last of the sorted values along d is NaN where any is.
local function or_nan(sorted, d, y)
  local last = nn.slice(sorted, d, -1)
  return prim.is_float(sorted) and nn.where(nn.ne(last, last), last, y) or y
end

-- The median along dim, the lower of the two of an even number, and its index (int32), as torch.median. Without a dim:
-- of all elements, the value alone. NaN where any element is.
function nn.median(x, dim, keepdim)
  local y, d = row_of("median", x, dim)
  local values, indices = nn.sort(y, d)
  local at = (prim.size(y, d) - 1) // 2
  local median = or_nan(values, d, nn.slice(values, d, at, at + 1))
  if dim == nil then return nn.squeeze(median, d) end
  return dropped("median", keepdim, d, median, nn.slice(indices, d, at, at + 1))
end

-- The element below which the share q, a number from 0 to 1, of those along dim lies (without a dim: of all),
-- interpolated linearly between two, as torch.quantile. NaN where any element is.
function nn.quantile(x, q, dim, keepdim)
  local y, d = row_of("quantile", prim.floating(need_tensor("quantile", x)), dim)
  need_number("quantile", "q", q, "a number from 0 to 1", function(n) return n >= 0 and n <= 1 end)
  local sorted = nn.sort(y, d)
  local place = q * (prim.size(y, d) - 1)
  local low, share = math.floor(place), place - math.floor(place)
  local result = nn.slice(sorted, d, low, low + 1)
  if share > 0 then result = result + (nn.slice(sorted, d, low + 1, low + 2) - result) * share end
  return (dropped("quantile", dim ~= nil and keepdim, d, or_nan(sorted, d, result)))
end

-- The element that is there most often along dim (default: the last), of several the smallest, and the index (int32) of
-- its last one, as torch.mode.
function nn.mode(x, dim, keepdim)
  local d = dim_of("mode", x, dim or -1)
  local values, indices = along(x, d, function(y)
    local sorted, places = nn.sort(y)
    local n = prim.size(sorted, -1)
    local at = nn.expand(nn.arange(n), sorted.shape)
    local first = n == 1 and at or nn.where(nn.concat({ nn.ne(nn.slice(at, -1, 0, 1), 0), nn.eq(nn.slice(sorted, -1, 1), nn.slice(sorted, -1, 0, -1)) }, -1), 0, at)
    local run = nn.argmax(at - nn.cummax(first), -1, true)
    return nn.gather(sorted, -1, run), nn.gather(places, -1, run)
  end)
  return dropped("mode", keepdim, d, values, indices)
end

-- How many elements of `sorted`, ascending along its last dimension, are below each x (right = true in options: not
-- above it), int32, as torch.searchsorted: where x would be put in. sorted has one dimension, or x's sizes but for the
-- last.
function nn.searchsorted(sorted, x, options)
  local o = prim.table_of(options)
  check_keys("nn.searchsorted", o, "right")
  if type(x) == "number" then x = nn.cast(nn.full({ 1 }, x), need_tensor("searchsorted", sorted)) end
  local pair = prim.promoted { need_tensor("searchsorted", sorted), need_tensor("searchsorted", x) }
  return (op("searchsorted", { sorted = pair[1], x = pair[2], right = need_boolean("searchsorted", "right", o.right, false) }))
end

-- searchsorted with the arguments the other way round, as torch.bucketize: the number of the bucket of each x between
-- `boundaries`, one ascending row.
function nn.bucketize(x, boundaries, options) return nn.searchsorted(boundaries, x, options) end

-- The elements in ascending order along the first dimension, as torch.msort.
function nn.msort(x) return (nn.sort(x, 0)) end

-- The median of the elements that are no NaN, as torch.nanmedian, with nn.median's arguments and results.
function nn.nanmedian(x, dim, keepdim)
  local y, d = row_of("nanmedian", x, dim)
  local values, indices = nn.sort(y, d)
  local n = nn.sum(nn.cast(nn.eq(y, y), "fp32"), d, true)
  local at = nn.cast(nn.maximum(nn.floor((n - 1) / 2), 0), "int32")
  local median = nn.gather(values, d, at)
  if dim == nil then return nn.squeeze(median, d) end
  return dropped("nanmedian", keepdim, d, median, nn.gather(indices, d, at))
end

-- How many elements of x are in each of `bins` equal parts of min to max, without a gradient, as torch.histc. What lies
-- outside, and NaN, does not count.
function nn.histc(x, bins, min, max)
  local n = need_size("histc", "bins", bins)
  need_number("histc", "min", min, "a number")
  need_number("histc", "max", max, "a number above min", function(m) return m > min end)
  local y = prim.wide(nn.detach(need_tensor("histc", x)))
  local inside = nn.logical_and(nn.ge(y, min), nn.le(y, max))
  local bin = nn.minimum(nn.floor((nn.where(inside, y, min) - min) * n / (max - min)), n - 1)
  local counts = nn.bincount(nn.where(inside, nn.cast(bin, "int32"), n), n + 1)
  return nn.cast(nn.slice(counts, 0, 0, n), prim.is_float(x) and x or "fp32")
end
