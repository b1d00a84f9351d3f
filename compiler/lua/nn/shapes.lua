-- nn: tensors like others, sequences and masks; parts, orders and copies of tensors along dimensions.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/views.lua,
-- nn/pointwise.lua, nn/network.lua.
-- Relied on by: nn.lua, which makes the module of it; nn/layers.lua.
local prim = prim
local nn, fail, dim_of, list_of, describe = prim.nn, prim.refuse, prim.dim_of, prim.list_of, prim.describe
local is_float, need_tensor, need_integer, need_size = prim.is_float, prim.need_tensor, prim.need_integer, prim.need_size
local options = prim.take_options

-- ── more sources ─────────────────────────────────────────────────────────────────────────────────────────────────────

-- A tensor of x's shape and dtype that is 0, 1 or value everywhere, as torch.NAME.
function nn.full_like(x, value)
  local shape = need_tensor("full_like", x).shape
  return is_float(x) and nn.cast(nn.full(shape, value), x) or nn.full(shape, value, x.dtype)
end
function nn.zeros_like(x) return nn.full_like(x, 0) end
function nn.ones_like(x) return nn.full_like(x, 1) end

-- [steps] in fp32: from start to stop in equal steps, and base (10) to the power of such, as torch.NAME.
function nn.linspace(start, stop, steps)
  local n = need_size("linspace", "steps", steps)
  prim.need_number("linspace", "start", start, "a number")
  prim.need_number("linspace", "stop", stop, "a number")
  if n == 1 then return nn.full({ 1 }, start) end
  local i, step = nn.arange(n, "fp32"), (stop - start) / (n - 1)
  return nn.where(nn.lt(i, n // 2), i * step + start, (i - (n - 1)) * step + stop)
end
function nn.logspace(start, stop, steps, base)
  return nn.pow(base or 10, nn.linspace(start, stop, steps))
end

-- 1 where row and column are equal, of n rows and m (n) columns, as torch.eye. dtype: "fp32" by default.
function nn.eye(n, m, dtype)
  local rows, columns = need_size("eye", "n", n), need_size("eye", "m", m or n)
  return nn.cast(nn.eq(nn.unsqueeze(nn.arange(rows), 1), nn.arange(columns)), dtype or "fp32")
end

-- x where the column and the row plus offset compare as `holds` says, else 0.
local function triangle(what, holds, x, offset)
  local n, m = x:size(dim_of(what, x, -2)), x:size(-1)
  return nn.where(holds(nn.arange(m), nn.unsqueeze(nn.arange(n), 1) + offset), x, 0)
end

-- x where the column is at most (tril) or at least (triu) the row plus `diagonal` (0), else 0, as torch.NAME.
function nn.tril(x, diagonal) return triangle("tril", nn.le, x, options("nn.tril", "diagonal", { 0 }, diagonal)) end
function nn.triu(x, diagonal) return triangle("triu", nn.ge, x, options("nn.triu", "diagonal", { 0 }, diagonal)) end

-- Each vector along its own dimension, all of one shape, as torch.meshgrid with indexing = "ij". As many results as
-- vectors.
function nn.meshgrid(...)
  local vectors, shape, out = list_of(...), {}, {}
  for i, v in ipairs(vectors) do shape[i] = need_tensor("meshgrid", v):size(0) end
  for i, v in ipairs(vectors) do
    local own = {}
    for d = 1, #vectors do own[d] = d == i and shape[i] or 1 end
    out[i] = nn.expand(nn.reshape(v, own), shape)
  end
  return table.unpack(out)
end

-- ── more of shapes ───────────────────────────────────────────────────────────────────────────────────────────────────

-- Tensors one after the other along k, of which there may be many.
function prim.join(list, k)
  while #list > 16 do
    local fewer = {}
    for i = 1, #list, 16 do fewer[#fewer + 1] = nn.concat({ table.unpack(list, i, math.min(i + 15, #list)) }, k) end
    list = fewer
  end
  return nn.concat(list, k)
end

-- x with dimensions moved from `source` to `destination`, each one or a list, as torch.movedim.
function nn.movedim(x, source, destination)
  local from, to, order, moved = {}, {}, {}, {}
  for i, d in ipairs(list_of(source)) do from[i] = dim_of("movedim", x, d) moved[from[i]] = true end
  for i, d in ipairs(list_of(destination)) do to[dim_of("movedim", x, d)] = from[i] end
  local rest = 0
  for d = 0, x.ndim - 1 do
    if not to[d] then
      while moved[rest] do rest = rest + 1 end
      to[d], rest = rest, rest + 1
    end
    order[d + 1] = to[d]
  end
  return nn.permute(x, order)
end

-- The matrix x transposed; x with its last two dimensions swapped. As torch.NAME.
function nn.t(x) return need_tensor("t", x).ndim < 2 and x or nn.transpose(x, 0, 1) end
function nn.adjoint(x) return nn.transpose(x, -2, -1) end

-- x with dimension dim made several, of the sizes given, as torch.unflatten.
function nn.unflatten(x, dim, sizes)
  local k, shape = dim_of("unflatten", x, dim), {}
  for d, n in ipairs(x.shape) do
    if d == k + 1 then table.move(sizes, 1, #sizes, #shape + 1, shape) else shape[#shape + 1] = n end
  end
  return nn.reshape(x, shape)
end

-- `length` elements of dimension dim from start on; element index of dim, without the dimension; all of these, at most ten.
-- As torch.NAME.
function nn.narrow(x, dim, start, length)
  local n = x:size(dim_of("narrow", x, dim))
  local from = need_integer("narrow", "the start", start)
  from = from < 0 and from + n or from
  return nn.slice(x, dim, from, from + need_size("narrow", "the length", length))
end
function nn.select(x, dim, index)
  local n = x:size(dim_of("select", x, dim))
  local i = need_integer("select", "the index", index)
  i = i < 0 and i + n or i
  return nn.squeeze(nn.slice(x, dim, i, i + 1), dim)
end
function nn.unbind(x, dim)
  local pieces = table.pack(nn.split(x, 1, dim or 0))
  for i = 1, pieces.n do pieces[i] = nn.squeeze(pieces[i], dim or 0) end
  return table.unpack(pieces, 1, pieces.n)
end

-- x cut along dim (0) into so many pieces, of which the first are larger by one, or before each of the indices, as
-- torch.tensor_split; along dimension 1, 0 and 2: hsplit, vsplit, dsplit.
function nn.tensor_split(x, pieces, dim)
  local n, sizes = x:size(dim_of("tensor_split", x, dim or 0)), {}
  if type(pieces) == "table" then
    local from = 0
    for i, index in ipairs(pieces) do sizes[i], from = index - from, index end
    sizes[#sizes + 1] = n - from
  else
    local k = need_size("tensor_split", "the number of pieces", pieces)
    for i = 1, k do sizes[i] = n // k + (i <= n % k and 1 or 0) end
  end
  return nn.split(x, sizes, dim or 0)
end
function nn.hsplit(x, pieces) return nn.tensor_split(x, pieces, need_tensor("hsplit", x).ndim > 1 and 1 or 0) end
function nn.vsplit(x, pieces) return nn.tensor_split(x, pieces, 0) end
function nn.dsplit(x, pieces) return nn.tensor_split(x, pieces, 2) end

-- Tensors side by side in dimension 1 (vectors: 0), below one another in 0, behind one another in 2; vectors as columns.
-- As torch.NAME.
function nn.hstack(list) return nn.concat(list, need_tensor("hstack", list[1]).ndim > 1 and 1 or 0) end
function nn.vstack(list)
  return need_tensor("vstack", list[1]).ndim > 1 and nn.concat(list, 0) or nn.stack(list, 0)
end
function nn.dstack(list)
  return need_tensor("dstack", list[1]).ndim > 2 and nn.concat(list, 2) or nn.stack(list, 2)
end
function nn.column_stack(list)
  return need_tensor("column_stack", list[1]).ndim > 1 and nn.concat(list, 1) or nn.stack(list, 1)
end

-- x side by side with itself, so many times along each dimension, counted from the last, as torch.tile.
function nn.tile(x, ...)
  local times, wide, shape, out = list_of(...), {}, need_tensor("tile", x).shape, {}
  while #shape < #times do table.insert(shape, 1, 1) end
  for d, n in ipairs(shape) do
    local k = times[d - (#shape - #times)] or 1
    wide[2 * d - 1], wide[2 * d], out[d] = k, n, k * n
  end
  local single, every = {}, {}
  for d, n in ipairs(shape) do single[2 * d - 1], single[2 * d] = 1, n end
  for d, n in ipairs(wide) do every[d] = n end
  return nn.reshape(nn.expand(nn.reshape(x, single), every), out)
end

-- Each element of dimension dim (of all) so many times in a row, as torch.repeat_interleave.
function nn.repeat_interleave(x, repeats, dim)
  if dim == nil then return nn.repeat_interleave(nn.reshape(x, -1), repeats, 0) end
  local k, n = dim_of("repeat_interleave", x, dim), need_size("repeat_interleave", "the number of repeats", repeats)
  local shape = nn.unsqueeze(x, k + 1).shape
  shape[k + 2] = n
  return nn.flatten(nn.expand(nn.unsqueeze(x, k + 1), shape), k, k + 1)
end

-- x with its elements moved on by shifts along dims, those beyond the end to the front; without dims in the order of all
-- elements. As torch.roll.
function nn.roll(x, shifts, dims)
  if dims == nil then return nn.reshape(nn.roll(nn.reshape(x, -1), shifts, 0), x.shape) end
  local by = list_of(shifts)
  for i, d in ipairs(list_of(dims)) do
    local k = dim_of("roll", x, d)
    local shift = need_integer("roll", "a shift", by[i]) % x:size(k)
    if shift > 0 then x = nn.concat({ nn.slice(x, k, -shift), nn.slice(x, k, 0, -shift) }, k) end
  end
  return x
end

-- x with the elements of dimension 1 in reverse order, as torch.fliplr.
function nn.fliplr(x) return nn.flip(x, 1) end
-- x with the elements of dimension 0 in reverse order, as torch.flipud.
function nn.flipud(x) return nn.flip(x, 0) end

-- The diagonal, moved right by offset (0), of the matrices in dimensions dim1 (0) and dim2 (1), as the last dimension, as
-- torch.diagonal.
function nn.diagonal(x, offset, dim1, dim2)
  local o, a, b = options("nn.diagonal", "offset dim1 dim2", { 0, 0, 1 }, offset, dim1, dim2)
  local n, m = x:size(dim_of("diagonal", x, a)), x:size(dim_of("diagonal", x, b))
  local length = math.min(n + math.min(o, 0), m - math.max(o, 0))
  local flat = nn.flatten(nn.movedim(x, { a, b }, { -2, -1 }), -2, -1)
  local index = nn.arange(need_size("diagonal", "its length", length)) * (m + 1) + (o < 0 and -o * m or o)
  return nn.index_select(flat, flat.ndim - 1, index)
end

-- Matrices whose diagonal, moved right by offset (0), is the last dimension of x, else 0, as torch.diag_embed; of all
-- elements of x (diagflat); that, or of a matrix its diagonal (diag); the sum of the diagonal (trace). As torch.NAME.
function nn.diag_embed(x, offset)
  local o = options("nn.diag_embed", "offset", { 0 }, offset)
  local n, shape = need_tensor("diag_embed", x):size(-1) + math.abs(o), x.shape
  if o ~= 0 then
    shape[#shape] = math.abs(o)
    local none = nn.zeros_like(nn.slice(nn.expand(nn.unsqueeze(nn.select(x, -1, 0), -1), shape), -1))
    x = nn.concat(o > 0 and { x, none } or { none, x }, -1)
  end
  return nn.where(nn.eq(nn.arange(n) - nn.unsqueeze(nn.arange(n), 1), o), nn.unsqueeze(x, -1), 0)
end
function nn.diagflat(x, offset) return nn.diag_embed(nn.reshape(x, -1), offset) end
function nn.diag(x, diagonal)
  return need_tensor("diag", x).ndim == 1 and nn.diag_embed(x, diagonal) or nn.diagonal(x, diagonal)
end
function nn.trace(x) return nn.sum(nn.diagonal(x)) end

-- x, value where the mask is true, as Tensor.masked_fill; x itself, which no operation changes, as torch.clone; how many
-- elements x has, a number of Lua, as torch.numel; is x a tensor, as torch.is_tensor.
function nn.masked_fill(x, mask, value) return nn.where(mask, value, x) end
function nn.clone(x) return need_tensor("clone", x) end
function nn.numel(x)
  local n = 1
  for _, size in ipairs(need_tensor("numel", x).shape) do n = n * size end
  return n
end
function nn.is_tensor(x) return prim.is_tensor(x) end
