-- nn: products of tensors that are summed over dimensions, by the dimensions' names or numbers.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to; nn/matrices.lua,
-- nn/shapes.lua, nn/reductions.lua.
-- Relied on by: nn.lua, which makes the module of it. A product and its sum are one product of matrices, rounded once.
local prim = prim
local nn, fail, need_tensor, need_integer, dim_of = prim.nn, prim.refuse, prim.need_tensor, prim.need_integer, prim.dim_of

-- ── tensors whose dimensions have names: { x = tensor, names = list } ────────────────────────────────────────────────

local function place_of(names, name)
  for i, n in ipairs(names) do
    if n == name then return i end
  end
end

-- t with its dimensions in the order of `names`, new ones of size 1 where t lacks one.
local function ordered(t, names)
  local order, shape = {}, {}
  for i, name in ipairs(names) do
    local k = place_of(t.names, name)
    if k then order[#order + 1] = k - 1 end
    shape[i] = k and t.x.shape[k] or 1
  end
  return nn.reshape(#order > 1 and nn.permute(t.x, order) or t.x, shape)
end

-- t summed over the dimensions that are not in `kept`, a table of names.
local function summed(t, kept)
  local over, names = {}, {}
  for k, name in ipairs(t.names) do
    if kept[name] then names[#names + 1] = name else over[#over + 1] = k - 1 end
  end
  return { x = #over > 0 and nn.sum(t.x, over) or t.x, names = names }
end

-- t with equal names, of which the diagonal is taken, once.
local function diagonals(t)
  for i, name in ipairs(t.names) do
    for j = i + 1, #t.names do
      if t.names[j] == name then
        local names = {}
        for k, n in ipairs(t.names) do
          if k ~= i and k ~= j then names[#names + 1] = n end
        end
        names[#names + 1] = name
        return diagonals { x = nn.diagonal(t.x, 0, i - 1, j - 1), names = names }
      end
    end
  end
  return t
end

local function volume(sizes, names)
  local n = 1
  for _, name in ipairs(names) do n = n * sizes[name] end
  return n
end

-- t as [batch..., rows, columns], each of the latter of all its names.
local function matrix(t, sizes, batch, rows, columns)
  local names, shape = {}, {}
  for i, name in ipairs(batch) do names[i], shape[i] = name, sizes[name] end
  for _, name in ipairs(rows) do names[#names + 1] = name end
  for _, name in ipairs(columns) do names[#names + 1] = name end
  shape[#shape + 1], shape[#shape + 2] = volume(sizes, rows), volume(sizes, columns)
  return nn.reshape(ordered(t, names), shape)
end

-- a · b, of all dimensions that are in `kept`. Those of size 1 go with any size of the other's.
local function contracted(a, b, kept)
  local needed = { {}, {} }
  for name in pairs(kept) do needed[1][name], needed[2][name] = true, true end
  for i, t in ipairs { b, a } do
    for k, name in ipairs(t.names) do needed[i][name] = needed[i][name] or t.x.shape[k] > 1 end
  end
  a, b = summed(a, needed[1]), summed(b, needed[2])
  local sizes, batch, rows, inner, columns, all = {}, {}, {}, {}, {}, {}
  for k, name in ipairs(b.names) do sizes[name] = b.x.shape[k] end
  for k, name in ipairs(a.names) do
    local size, other = a.x.shape[k], sizes[name]
    local list = not other and rows or size ~= other and batch or kept[name] and batch or inner
    list[#list + 1], all[#all + 1], sizes[name] = name, name, math.max(size, other or 1)
  end
  for _, name in ipairs(b.names) do
    if not place_of(a.names, name) then columns[#columns + 1], all[#all + 1] = name, name end
  end
  local one_by_one = #inner == 0
  for _, name in ipairs(batch) do
    for _, t in ipairs { a, b } do one_by_one = one_by_one or t.x.shape[place_of(t.names, name)] < sizes[name] end
  end
  if one_by_one or #batch > 4 then
    return summed({ x = ordered(a, all) * ordered(b, all), names = all }, kept)
  end
  local names, shape = {}, {}
  for _, list in ipairs { batch, rows, columns } do
    for _, name in ipairs(list) do names[#names + 1], shape[#shape + 1] = name, sizes[name] end
  end
  local y = nn.matmul(matrix(a, sizes, batch, rows, inner), matrix(b, sizes, batch, inner, columns))
  return summed({ x = nn.reshape(y, shape), names = names }, kept)
end

-- The product of all, summed over what is not in `out`, a list of names. It goes from the first to the last.
local function product(list, out)
  local result
  for i, t in ipairs(list) do
    local kept = {}
    for _, name in ipairs(out) do kept[name] = true end
    for k = i + 1, #list do
      for _, name in ipairs(list[k].names) do kept[name] = true end
    end
    t = diagonals(t)
    result = result and contracted(result, t, kept) or summed(t, kept)
  end
  return ordered(result, out)
end

-- ── functions ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The names of one operand in an equation: its letters, and "1", "2" ... for the dimensions of an ellipsis, from the last.
local function names_of(term, ndim)
  local names, before, after = {}, term:match("^(%a*)%.%.%.(%a*)$")
  local letters = before and before .. after or term
  if not letters:match("^%a*$") then fail(nil, 'einsum: "%s" is no list of letters, of which one place may be "..."', term) end
  local rest = ndim and ndim - #letters or 0
  for c in (before or term):gmatch(".") do names[#names + 1] = c end
  for k = before and rest or 0, 1, -1 do names[#names + 1] = tostring(k) end
  for c in (after or ""):gmatch(".") do names[#names + 1] = c end
  return names, before ~= nil
end

-- Sums of products over the dimensions that the equation's letters name, as torch.einsum: nn.einsum("bij,bjk->bik", a, b).
-- A letter twice in one operand is its diagonal; "..." are dimensions that broadcast; without "->" the result has the
-- letters that are there once, in alphabetical order. Two operands are one product of matrices where they share a letter
-- that the result lacks; more of them are multiplied from left to right.
function nn.einsum(equation, ...)
  local given = prim.list_of(...)
  if type(equation) ~= "string" then fail('write nn.einsum("ij,jk->ik", a, b)', "einsum: expected an equation, got %s", prim.describe(equation)) end
  local inputs, output = equation:gsub("%s", ""), nil
  if inputs:find("->", 1, true) then inputs, output = inputs:match("^(.-)%->(.*)$") end
  local list, sizes, times, dots = {}, {}, {}, 0
  for term in (inputs .. ","):gmatch("(.-),") do
    local x = need_tensor("einsum", given[#list + 1])
    local names, ellipsis = names_of(term, x.ndim)
    if #names ~= x.ndim then fail(nil, 'einsum: "%s" names %d dimensions, but %s has %d', term, #names, tostring(x), x.ndim) end
    for k, name in ipairs(names) do
      local size = x.shape[k]
      if sizes[name] and sizes[name] ~= size and sizes[name] ~= 1 and size ~= 1 then
        fail(nil, 'einsum: dimension "%s" has %d elements in %s, and %d before it', name, size, tostring(x), sizes[name])
      end
      sizes[name], times[name] = math.max(sizes[name] or 1, size), (times[name] or 0) + 1
      if ellipsis and tonumber(name) then dots = math.max(dots, tonumber(name)) end
    end
    list[#list + 1] = { x = x, names = names }
  end
  if #list ~= #given then fail(nil, 'einsum: "%s" is about %d tensors, and %d are given', equation, #list, #given) end
  local out = {}
  if output then
    out = names_of(output, #output:gsub("%.", "") + dots)
  else
    for name, n in pairs(times) do
      if n == 1 and not tonumber(name) then out[#out + 1] = name end
    end
    table.sort(out)
    for k = 1, dots do table.insert(out, 1, tostring(k)) end
  end
  for i, name in ipairs(out) do
    if not sizes[name] then fail(nil, 'einsum: "%s" of the result is in no operand of "%s"', name, equation) end
    if place_of(out, name) ~= i then fail(nil, 'einsum: "%s" is twice in the result of "%s"', name, equation) end
  end
  return product(list, out)
end

-- a · b summed over the last `dims` dimensions of a and the first of b, or over pairs of them: dims = { { of a }, { of b } },
-- as torch.tensordot. dims: 2.
function nn.tensordot(a, b, dims)
  local n, m, over = need_tensor("tensordot", a).ndim, need_tensor("tensordot", b).ndim, { {}, {} }
  if type(dims) == "table" then
    over = { prim.list_of(dims[1]), prim.list_of(dims[2]) }
  else
    for k = 1, need_integer("tensordot", "dims", dims == nil and 2 or dims) do over[1][k], over[2][k] = n - (dims or 2) + k - 1, k - 1 end
  end
  if #over[1] ~= #over[2] then fail(nil, "tensordot: %d dimensions of the first go with %d of the second", #over[1], #over[2]) end
  local left, right, out = { x = a, names = {} }, { x = b, names = {} }, {}
  for k, d in ipairs(over[1]) do
    local i, j = dim_of("tensordot", a, d), dim_of("tensordot", b, over[2][k])
    if a.shape[i + 1] ~= b.shape[j + 1] then
      fail(nil, "tensordot: dimension %d of %s and dimension %d of %s are of different sizes", i, tostring(a), j, tostring(b))
    end
    left.names[i + 1], right.names[j + 1] = "s" .. k, "s" .. k
  end
  for i, t in ipairs { left, right } do
    for k = 1, i == 1 and n or m do
      if not t.names[k] then
        t.names[k] = (i == 1 and "a" or "b") .. k
        out[#out + 1] = t.names[k]
      end
    end
  end
  return product({ left, right }, out)
end
