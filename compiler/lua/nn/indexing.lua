-- nn: elements by index, sums by index, counts.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/views.lua.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, dim_of, size_of = prim.nn, prim.op, prim.refuse, prim.dim_of, prim.size
local need_tensor, need_index, need_size = prim.need_tensor, prim.need_index, prim.need_size

-- An index outside of a dimension reads NaN (of integers -1, of booleans false) and adds nothing: no index, whatever
-- computed it, reads or writes other memory. Indices that data hold as they are, or that a model writes down, are
-- checked.

-- ── elements by index ────────────────────────────────────────────────────────────────────────────────────────────────

local function need_as_many(what, x, index)
  if need_index(what, index).ndim ~= need_tensor(what, x).ndim then
    fail(nil, "%s: the index %s must have as many dimensions as %s", what, tostring(index), tostring(x))
  end
end

-- x's elements at index, int32, along dim: y[i][j] = x[index[i][j]][j] for dim = 0, as torch.gather. The index has as
-- many dimensions as x, and in others than dim at most x's size. The gradient is scatter_add.
function nn.gather(x, dim, index)
  local k = dim_of("gather", x, dim)
  need_as_many("gather", x, index)
  for d = 0, x.ndim - 1 do
    if d ~= k and size_of(index, d) < size_of(x, d) then x = nn.slice(x, d, 0, size_of(index, d)) end
  end
  return (op("gather", { x = x, index = index, dim = k }))
end

-- The same, where sizes of 1 in other dimensions than dim broadcast, as torch.take_along_dim. Without a dim both are
-- rows.
function nn.take_along_dim(x, index, dim)
  if dim == nil then return nn.take(x, nn.reshape(need_index("take_along_dim", index), -1)) end
  local k = dim_of("take_along_dim", x, dim)
  need_as_many("take_along_dim", x, index)
  local function grown(y, other)
    local shape = {}
    for d = 0, y.ndim - 1 do shape[d + 1] = d ~= k and size_of(y, d) == 1 and size_of(other, d) or size_of(y, d) end
    return nn.expand(y, shape)
  end
  return nn.gather(grown(x, index), k, grown(index, x))
end

local function need_row(what, index)
  if need_index(what, index).ndim ~= 1 then fail(nil, "%s: the index %s must have one dimension", what, tostring(index)) end
end

-- index [n] as it is for all elements of x but those along k.
local function spread(x, k, index)
  local shape, alone = x.shape, {}
  for d = 1, #shape do alone[d] = 1 end
  shape[k + 1], alone[k + 1] = size_of(index, 0), size_of(index, 0)
  return nn.expand(nn.reshape(index, alone), shape)
end

-- f(rows) of x's rows along k, a matrix; its result has as many columns, which become x's other dimensions again.
local function by_rows(x, k, f)
  local order, back, shape = { k }, {}, {}
  for d = 0, x.ndim - 1 do
    if d ~= k then order[#order + 1] = d end
  end
  for i, d in ipairs(order) do back[d + 1], shape[i] = i - 1, size_of(x, d) end
  shape[1] = -1
  return nn.permute(nn.reshape(f(nn.reshape(nn.permute(x, order), size_of(x, k), -1)), shape), back)
end

-- The parts of x along dim that index [n] names, int32, as torch.index_select. Rows of floats are read as an
-- embedding's.
function nn.index_select(x, dim, index)
  local k = dim_of("index_select", x, dim)
  need_row("index_select", index)
  if not prim.is_float(x) then return (op("gather", { x = x, index = spread(x, k, index), dim = k })) end
  return by_rows(x, k, function(rows) return nn.embedding(index, rows) end)
end

-- The elements of x at index, which counts through x as one row, in the index's shape, as torch.take.
function nn.take(x, index)
  local row = nn.reshape(need_tensor("take", x), -1)
  return nn.reshape(op("gather", { x = row, index = nn.reshape(need_index("take", index), -1), dim = 0 }), index.shape)
end

-- ── sums by index ────────────────────────────────────────────────────────────────────────────────────────────────────

-- x with source's elements added where index says: x[index[i][j]][j] += source[i][j] for dim = 0, as torch.scatter_add.
-- The index has x's sizes but along dim; source at least the index's. Elements that go to one place are added up in
-- their order, in fp32, and rounded once before x is added: bits repeat. The gradient of source is gather.
function nn.scatter_add(x, dim, index, source)
  local k = dim_of("scatter_add", x, dim)
  need_as_many("scatter_add", x, index)
  need_as_many("scatter_add", source, index)
  for d = 0, x.ndim - 1 do
    if d ~= k and size_of(index, d) ~= size_of(x, d) then
      fail(nil, "scatter_add: the index %s must have the sizes of %s in other dimensions than %d", tostring(index), tostring(x), k)
    end
    if size_of(index, d) < size_of(source, d) then source = nn.slice(source, d, 0, size_of(index, d)) end
  end
  return x + op("scatter_add", { source = source, index = index, dim = k, size = size_of(x, k) })
end

-- x with the parts of source along dim added to those that index [n] names, as torch.index_add; in the order of source.
function nn.index_add(x, dim, index, source)
  local k = dim_of("index_add", x, dim)
  need_row("index_add", index)
  local fits = need_tensor("index_add", source).ndim == x.ndim
  for d = 0, fits and x.ndim - 1 or -1 do fits = fits and size_of(source, d) == (d == k and size_of(index, 0) or size_of(x, d)) end
  if not fits then
    fail(nil, "index_add: the source %s must have the sizes of %s, and along dimension %d that of the index %s", tostring(source), tostring(x), k, tostring(index))
  end
  if not prim.is_float(source) then
    return x + op("scatter_add", { source = source, index = spread(source, k, index), dim = k, size = size_of(x, k) })
  end
  return x + by_rows(source, k, function(rows) return (op("embedding_grad", { index = index, g = rows, rows = size_of(x, k) })) end)
end

-- ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Of each number in ids a row of `classes` that is 1 there and 0 elsewhere, int32, as torch.nn.functional.one_hot. The
-- row of a number outside of 0 to classes - 1 is 0.
function nn.one_hot(ids, classes)
  need_index("one_hot", ids)
  return nn.cast(nn.eq(nn.unsqueeze(ids, -1), nn.arange(need_size("one_hot", "classes", classes))), "int32")
end

-- How often each of 0 to n - 1 is in ids, int32 [n], as torch.bincount with minlength = n; with weights, of ids' shape,
-- their sums. Other numbers are left out.
function nn.bincount(ids, n, weights)
  local index = nn.reshape(need_index("bincount", ids), -1)
  local each = weights and nn.reshape(need_tensor("bincount", weights), -1) or nn.expand(nn.ones({ 1 }, "int32"), index.shape)
  return (op("scatter_add", { source = each, index = index, dim = 0, size = need_size("bincount", "n", n) }))
end
