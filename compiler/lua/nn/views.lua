-- nn: tensors from numbers alone; views, slices and joins of tensors.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, describe, is_module = prim.nn, prim.op, prim.refuse, prim.describe, prim.is_module
local size_of, dim_of, list_of, need_tensor = prim.size, prim.dim_of, prim.list_of, prim.need_tensor
local need_integer, need_size = prim.need_integer, prim.need_size

-- ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────

-- A tensor of the shape { n, ... } that is value, 0 or 1 everywhere, as torch.NAME. dtype: "fp32" by default.
function nn.full(shape, value, dtype) return prim.full(shape, value, dtype or "fp32") end
function nn.zeros(shape, dtype) return prim.full(shape, 0, dtype or "fp32") end
function nn.ones(shape, dtype) return prim.full(shape, 1, dtype or "fp32") end

-- [n]: 0, 1, ... n - 1, as torch.arange. dtype: "int32" by default.
function nn.arange(n, dtype) return prim.arange(need_size("arange", "n", n), 0, 1, dtype or "int32") end

-- ── views ────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- x in another shape, sizes given one by one or as a list, as torch.reshape. One size may be -1: what is left. Copies
-- only where strides allow no view.
function nn.reshape(x, ...) return prim.reshape(x, list_of(...)) end
nn.view = nn.reshape

-- x with dimensions of size 1 repeated and new ones in front, as Tensor.expand. -1 keeps a size.
function nn.expand(x, ...) return prim.expand(x, list_of(...)) end

-- x with all of its dimensions in the order given, as torch.permute: nn.permute(x, 0, 2, 1).
function nn.permute(x, ...)
  local order, seen = {}, {}
  local given, n = list_of(...), need_tensor("permute", x).ndim
  if #given ~= n then fail(nil, "permute: %s has %d dimensions, the order names %d", tostring(x), n, #given) end
  for i, d in ipairs(given) do
    order[i] = dim_of("permute", x, d)
    if seen[order[i]] then fail(nil, "permute: dimension %d is named twice", order[i]) end
    seen[order[i]] = true
  end
  return (op("transpose", { a = x, order = order }))
end

-- x with dimensions a and b swapped, as torch.transpose.
function nn.transpose(x, a, b)
  local order = {}
  a, b = dim_of("transpose", x, a), dim_of("transpose", x, b)
  for d = 0, x.ndim - 1 do
    order[d + 1] = d == a and b or d == b and a or d
  end
  return (op("transpose", { a = x, order = order }))
end

-- x with a new dimension of size 1 at dim, as torch.unsqueeze.
function nn.unsqueeze(x, dim)
  local shape = need_tensor("unsqueeze", x).shape
  local d = need_integer("unsqueeze", "the dimension", dim)
  local k = d < 0 and d + #shape + 1 or d
  if k < 0 or k > #shape then fail(nil, "unsqueeze: %s cannot get a dimension %d", tostring(x), d) end
  table.insert(shape, k + 1, 1)
  return prim.reshape(x, shape)
end

-- x without its dimension dim, whose size must be 1, as torch.squeeze.
function nn.squeeze(x, dim)
  local k, shape = dim_of("squeeze", x, dim), x.shape
  if shape[k + 1] ~= 1 then fail(nil, "squeeze: dimension %d of %s is %d, not 1", dim, tostring(x), shape[k + 1]) end
  table.remove(shape, k + 1)
  return prim.reshape(x, shape)
end

-- x with its dimensions first to last (all by default) made one, as torch.flatten.
function nn.flatten(x, first, last)
  local a, b = dim_of("flatten", x, first or 0), dim_of("flatten", x, last or -1)
  if a > b then fail(nil, "flatten: the first dimension, %d, comes after the last, %d, of %s", a, b, tostring(x)) end
  local shape = {}
  for i, n in ipairs(x.shape) do
    if i - 1 <= a or i - 1 > b then shape[#shape + 1] = n else shape[#shape] = shape[#shape] * n end
  end
  return prim.reshape(x, shape)
end

-- Elements start to stop - 1 of dimension dim (default: all), as x[start:stop] in PyTorch. Negative numbers count from
-- the end.
function nn.slice(x, dim, start, stop)
  local k = dim_of("slice", x, dim)
  local n = x.shape[k + 1]
  local from = need_integer("slice", "the start", start or 0)
  local to = need_integer("slice", "the end", stop or n)
  from, to = from < 0 and from + n or from, to < 0 and to + n or to
  if from < 0 or to > n or from >= to then
    fail(nil, "slice: elements %s to %s of dimension %d, which has %d, of %s", tostring(start or 0), tostring(stop or n), dim, n, tostring(x))
  end
  return (op("slice", { a = x, dim = k, start = from, length = to - from }))
end

-- x from the last to the first along dim, or along each of a list of them, as torch.flip.
function nn.flip(x, ...)
  for _, d in ipairs(list_of(...)) do x = op("flip", { a = x, dim = dim_of("flip", x, d) }) end
  return x
end

-- Pieces of x along dim (default 0), as torch.split. sizes: a list, or one size for all pieces. The pieces are returned
-- as several results, at most ten.
function nn.split(x, sizes, dim)
  local k = dim_of("split", x, dim or 0)
  local n, list = size_of(x, k), {}
  if type(sizes) == "number" then
    local size = need_size("split", "the size", sizes)
    if n % size ~= 0 then fail(nil, "split: dimension %d of %s has %d elements, no multiple of %d", k, tostring(x), n, size) end
    sizes = {}
    for i = 1, n // size do sizes[i] = size end
  elseif type(sizes) ~= "table" then
    fail(nil, "split: expected a size or a list of sizes, got %s", describe(sizes))
  end
  local sum = 0
  for i, size in ipairs(sizes) do
    sum = sum + need_size("split", "size " .. i, size)
    list[i] = size
  end
  if sum ~= n then
    fail(nil, "split: the sizes %s add up to %d ≠ %d, the size of dimension %d of %s", table.concat(sizes, " + "), sum, n, k, tostring(x))
  end
  if #sizes > 10 then fail(nil, "split: %d pieces; at most 10 at a time: use nn.slice, or split in two steps", #sizes) end
  return op("split", { a = x, dim = k, pieces = #sizes, sizes = list })
end

-- Equal pieces of x along dim (default 0), as torch.chunk: `pieces` results, at most ten. The size must be a multiple
-- of their number.
function nn.chunk(x, pieces, dim)
  local k = dim_of("chunk", x, dim or 0)
  local n = size_of(x, k)
  pieces = need_size("chunk", "the number of pieces", pieces)
  if n % pieces ~= 0 then fail(nil, "chunk: dimension %d of %s has %d elements, no multiple of %d", k, tostring(x), n, pieces) end
  return nn.split(x, n // pieces, k)
end

-- The tensors of a list, one after the other along dim (default 0), as torch.cat. Their other sizes must be equal;
-- dtypes are promoted.
function nn.concat(list, dim)
  if type(list) ~= "table" or is_module(list) then
    fail(nil, "concat: expected a list of tensors { a, b }, got %s", describe(list))
  end
  local k = dim_of("concat", list[1], dim or 0)
  for i, x in ipairs(list) do
    local bad = need_tensor("concat", x).ndim ~= list[1].ndim
    for d = 1, bad and 0 or x.ndim do
      bad = bad or (d ~= k + 1 and x.shape[d] ~= list[1].shape[d])
    end
    if bad then
      fail(nil, "concat: piece 1 is %s, piece %d %s: all sizes but that of dimension %d must be equal", tostring(list[1]), i, tostring(x), k)
    end
  end
  return #list == 1 and list[1] or (op("concat", { x = prim.promoted(list), dim = k }))
end

-- The tensors of a list, of one shape, along a new dimension dim (default 0), as torch.stack.
function nn.stack(list, dim)
  local wider = {}
  for i, x in ipairs(list) do wider[i] = nn.unsqueeze(x, dim or 0) end
  return nn.concat(wider, dim or 0)
end
