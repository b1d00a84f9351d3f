-- Checks of arguments, for nn.lua and the files of nn/: each returns what it was given, or ends the compilation at the
-- user's line. And what several of these files do with arguments before they make an op.
-- Relies on: the table `prim` (frontend/*.c).
-- Relied on by: nn.lua, nn/*.lua, optim.lua. A message is fail(remedy, message, ...); tests/program/bad shows each of them.
local prim = prim
prim.nn = {}                                               -- what the files of nn/ add their functions to
local describe, is_tensor = prim.describe, prim.is_tensor
local LEAST, MOST = 0x1p-126, 0x1.fffffep127               -- fp32's smallest normal and largest number

function prim.refuse(remedy, message, ...)
  prim.fail(message:format(...), remedy)
end
local fail = prim.refuse

-- The table of options that a caller gave, or an empty one. check_keys refuses what is no table, such as PyTorch's
-- positional `false`.
function prim.table_of(options)
  if options == nil then return {} end
  return options
end

function prim.need_tensor(what, x)
  if not is_tensor(x) then
    local lost = x == nil and "does the forward that computes it lack its `return`?" or nil
    fail(lost, "%s: expected a tensor, got %s", what, describe(x))
  end
  return x
end

function prim.need_integer(what, name, x)
  local n = type(x) == "number" and math.tointeger(x)
  if not n then fail(nil, "%s: %s must be a whole number, not %s", what, name, describe(x)) end
  return n
end

function prim.need_size(what, name, x)
  local n = prim.need_integer(what, name, x)
  if n < 1 then fail(nil, "%s: %s = %d; it must be at least 1", what, name, n) end
  return n
end

-- x, of the kind that `kind` says in words: `fits` holds for it. NaN and what fp32 cannot hold are of no kind.
function prim.need_number(what, name, x, kind, fits, remedy)
  if type(x) ~= "number" or not (math.abs(x) <= MOST) or (fits and not fits(x)) then
    fail(remedy, "%s: %s must be %s, not %s", what, name, kind, describe(x))
  end
  return x
end

function prim.need_positive(what, name, x, remedy)
  return prim.need_number(what, name, x, "a number above 0", function(n) return n >= LEAST end, remedy)
end

-- eps keeps the inverse root of a variance of 0 finite: 0 does not, and 1e5 for 1e-5 makes every result 0.
function prim.need_eps(what, eps, default)
  if eps == nil then return default end
  return prim.need_number(what, "eps", eps, "a small number above 0, at most 1", function(n) return n >= LEAST and n <= 1 end)
end

function prim.need_probability(what, p)
  if type(p) ~= "number" or not (p >= 0 and p < 1) then
    fail(nil, "%s: the probability must be a number from 0 to below 1, not %s", what, describe(p))
  end
  return p
end

-- nil is the default. 0 is true in Lua, and "false" too: neither is taken for a boolean.
function prim.need_boolean(what, name, x, default)
  if x == nil then return default end
  if type(x) ~= "boolean" then fail(nil, "%s: %s must be true or false, not %s", what, name, describe(x)) end
  return x
end

function prim.need_momentum(what, momentum)
  if momentum == nil then return 0.1 end
  return prim.need_number(what, "momentum", momentum, "a number from 0 to 1", function(n) return n >= 0 and n <= 1 end)
end

-- A dimension as PyTorch counts it, from 0 or from the end.
function prim.dim_of(what, x, d)
  local n = prim.need_tensor(what, x).ndim
  d = prim.need_integer(what, "the dimension", d)
  local k = d < 0 and d + n or d
  if n == 0 then fail(nil, "%s: %s is a single number and has no dimensions; nn.reshape(x, 1) gives it one", what, tostring(x)) end
  if k < 0 or k >= n then
    fail(nil, "%s: %s has no dimension %d; it has dimensions 0 to %d (or -%d to -1)", what, tostring(x), d, n - 1, n)
  end
  return k
end

-- f(x), whose results are tensors, for an f that computes along the last dimension: here along dimension k, from 0 on.
function prim.along(x, k, f)
  if k == x.ndim - 1 then return f(x) end
  local order = {}
  for d = 1, x.ndim do order[d] = d - 1 end
  order[k + 1], order[x.ndim] = x.ndim - 1, k
  local function swapped(y, ...)
    if y ~= nil then return (prim.op("transpose", { a = y, order = order })), swapped(...) end
  end
  return swapped(f((swapped(x))))
end

-- An index, int32.
function prim.need_index(what, index)
  if prim.need_tensor(what, index).dtype ~= "int32" then
    fail(nil, '%s: the index %s must be int32: declare it as nn.input("int32", ...) or cast it', what, tostring(index))
  end
  return index
end

-- f(x, 2, 3) and f(x, { 2, 3 }) mean the same.
function prim.list_of(...)
  local first = ...
  if select("#", ...) == 1 and type(first) == "table" then return first end
  return { ... }
end

-- x, or x cast to fp32 if it holds integers or booleans.
function prim.floating(x)
  return prim.is_float(x) and x or prim.cast(x, "fp32")
end

function prim.same_sizes(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- w in x's dtype. Units may still cast either of them, so dtypes are compared again once precision is settled.
function prim.in_dtype_of(x, w)
  return w and w.dtype ~= x.dtype and prim.beside(x, w) or w
end

-- x in at least fp32.
function prim.wide(x)
  return x.dtype == "fp64" and x or prim.cast(x, "fp32")
end

-- A tensor whose dtype in its unit is what a and b are promoted to; its elements mean nothing.
local function together(a, b)
  if a == nil or a.ndim == 0 and b.ndim > 0 then return b end
  if rawequal(a, b) or b.ndim == 0 and a.ndim > 0 then return a end
  local function number(x) return x.ndim == 0 and x or (prim.op("sum", { x = x, over = (1 << x.ndim) - 1, keep = false })) end
  return number(a) + number(b)
end

-- f(...) with all tensors in at least fp32, rounded once to the dtype that the arguments have in their unit. Where f
-- gives several results, each is. Integers count as fp32.
function prim.in_fp32(f, ...)
  local x, like = table.pack(...), nil
  for i = 1, x.n do
    if is_tensor(x[i]) then
      if prim.is_float(x[i]) then like = together(like, x[i]) end
      x[i] = prim.wide(x[i])
    end
  end
  local y = table.pack(f(table.unpack(x, 1, x.n)))
  for i = 1, like and y.n or 0 do y[i] = prim.cast(y[i], like) end
  return table.unpack(y, 1, y.n)
end

-- The options of a function: a table of PyTorch's names, or arguments in PyTorch's order. names: separated by blanks. A
-- default says the kind: a number or a boolean; without one the value is the function's to check.
function prim.take_options(what, names, defaults, first, ...)
  local given, named, out, i = { first, ... }, type(first) == "table", {}, 0
  if named then prim.check_keys(what, first, names) end
  for name in names:gmatch("%S+") do
    i = i + 1
    local x, default = named and first[name], defaults[i]
    if not named then x = given[i] end
    if x == nil then x = default end
    if type(default) == "number" then prim.need_number(what, name, x, "a number") end
    if type(default) == "boolean" then prim.need_boolean(what, name, x) end
    out[i] = x
  end
  return table.unpack(out, 1, i)
end

-- Lua drops arguments that a function has no name for. Here they are refused, as in nn.dropout(x, 0.5, training).
function prim.none_too_many(name, most, hidden, ...)
  for i = most + 1, select("#", ...) do
    if select(i, ...) ~= nil then fail(nil, "%s: argument %d is one too many: it takes %d", name, i - hidden, most - hidden) end
  end
end

-- Makes each function refuse more arguments than it has names for. hidden: arguments that a call does not write in its
-- parentheses, such as the tensor of a method; they are not counted in messages.
function prim.exact(functions, prefix, hidden)
  for name, f in pairs(functions) do
    local most = type(f) == "function" and prim.parameters(f)
    functions[name] = not most and f or function(...)
      prim.none_too_many(prefix .. name, most, hidden, ...)
      return f(...)
    end
  end
  return functions
end
