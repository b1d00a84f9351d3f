-- nn: tensors of all ranks. Collectives of the model's own, anywhere in its programs.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; views.lua.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, size_of, dim_of, need_tensor = prim.nn, prim.op, prim.refuse, prim.size, prim.dim_of, prim.need_tensor

-- ── ranks ────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- How many ranks an axis has: "world" (all ranks, the default), "shard" or "replicate", the axes of the root unit's mesh, or
-- "expert", over which a mesh spreads experts.
-- Of the functions here a rank talks to those that differ from it in that axis alone. Ranks hold batches of their own, and
-- training minimises the mean of their losses: the gradient that comes back to a rank is the sum of what all ranks' losses
-- say, as with torch.distributed.nn.functional.
function nn.ranks(axis) return (prim.axis("ranks", axis)) end

-- x and its axis; with one rank nothing needs to be exchanged.
local function along(what, x, axis)
  need_tensor(what, x)
  return prim.axis(what, axis)
end

-- f(y), y being x with dimension dim in front; the result with it back in its place.
local function in_front(x, dim, f)
  if dim == 0 then return f(x) end
  return nn.transpose(f(nn.transpose(x, 0, dim)), 0, dim)
end

local function pieces(what, x, dim, ranks)
  local n = size_of(x, dim)
  if n % ranks ~= 0 then
    fail("pad it, or choose another dimension", "%s: dimension %d of %s is %d long, no multiple of %d, the number of ranks", what, dim, tostring(x), n, ranks)
  end
  return n // ranks
end

-- The tensors of all ranks, one after the other along dim (0 by default).
function nn.all_gather(x, axis, dim)
  local ranks, comm = along("all_gather", x, axis)
  local k = dim_of("all_gather", x, dim or 0)
  if ranks == 1 then return x end
  return in_front(x, k, function(y) return (op("all_gather", { x = y, comm = comm, ranks = ranks })) end)
end

local function summed(what, x, axis)
  if need_tensor(what, x).dtype == "bool" then
    fail(nil, "%s: %s is a mask, and masks have no sum; count with nn.cast(x, \"int32\")", what, tostring(x))
  end
  return along(what, x, axis)
end

-- The sum of all ranks' tensors, in the order of ranks.
function nn.all_reduce(x, axis)
  local ranks, comm = summed("all_reduce", x, axis)
  if ranks == 1 then return x end
  return (op("sum_ranks", { x = x, comm = comm, ranks = ranks }))
end

-- The sum of all ranks' tensors, of which each rank gets its piece along dim (0 by default). Pieces must be of a
-- multiple of 8 bytes.
function nn.reduce_scatter(x, axis, dim)
  local ranks, comm = summed("reduce_scatter", x, axis)
  local k = dim_of("reduce_scatter", x, dim or 0)
  pieces("reduce_scatter", x, k, ranks)
  if ranks == 1 then return x end
  return in_front(x, k, function(y) return (op("reduce_scatter", { x = y, comm = comm, ranks = ranks })) end)
end

-- Each rank's piece number r along dim (0 by default) goes to rank r, which puts what comes from all ranks one after the
-- other along `to` (dim by default), in the order of ranks.
function nn.all_to_all(x, axis, dim, to)
  local ranks, comm = along("all_to_all", x, axis)
  local k = dim_of("all_to_all", x, dim or 0)
  local j = dim_of("all_to_all", x, to or k)
  local shape, order = x.shape, {}
  local size = pieces("all_to_all", x, k, ranks)
  if ranks == 1 then return x end
  if k == 0 and j == 0 then return (op("all_to_all", { x = x, comm = comm, ranks = ranks })) end
  -- [.., ranks, size, ..] with ranks in front, the exchange, and ranks before dimension j
  if #shape >= 6 then fail("fold dimensions with nn.reshape first", "all_to_all: %s has %d dimensions; at most 5 are possible here", tostring(x), #shape) end
  shape[k + 1] = size
  table.insert(shape, k + 1, ranks)
  local y = prim.reshape(x, shape)
  for d = 0, #shape - 1 do order[d + 1] = d end
  table.insert(order, 1, table.remove(order, k + 1))
  y = op("all_to_all", { x = op("transpose", { a = y, order = order }), comm = comm, ranks = ranks })
  for d = 0, #shape - 1 do order[d + 1] = d < j and d + 1 or d == j and 0 or d end
  table.remove(shape, k + 1)
  shape[j + 1] = shape[j + 1] * ranks
  return prim.reshape(op("transpose", { a = y, order = order }), shape)
end

-- This rank's piece of x along dim (0 by default): nn.rank_slice(nn.arange(nn.ranks() * n)) numbers n rows of this rank
-- among those of all. It has no gradient.
function nn.rank_slice(x, axis, dim)
  local ranks, _, number = along("rank_slice", x, axis)
  local k = dim_of("rank_slice", x, dim or 0)
  pieces("rank_slice", x, k, ranks)
  if ranks == 1 then return x end
  return in_front(x, k, function(y) return (op("reshard", { x = y, axis = number })) end)
end
