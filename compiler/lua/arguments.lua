-- Checks of arguments, for nn.lua: each returns what it was given, or ends the compilation at the user's line.
-- Relies on: the table `prim` (frontend/*.c).
-- Relied on by: nn.lua. A message is fail(remedy, message, ...); tests/program/bad shows each of them.
local prim = prim
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
