-- nn: values that buffers get at the end of a step.
-- Relies on: the table `prim` (frontend/*.c), whose field nn this file adds functions to; pointwise.lua, views.lua, reductions.lua,
-- ranks.lua. Relied on by: nn.lua, which makes the module of it; experts.lua.
local prim = prim
local nn, fail, describe, need_tensor = prim.nn, prim.refuse, prim.describe, prim.need_tensor

-- The dtype in which x is reduced.
local function wide(x, reduce)
  local dtype = x.dtype
  if dtype == "bool" then
    fail(nil, "nn.assign: %s is a mask, and masks have no %s; count with nn.cast(x, \"int32\")", tostring(x), reduce)
  end
  if dtype == "int32" or dtype == "int64" then
    if reduce == "max" then fail('write nn.cast(x, "fp32")', "nn.assign: %s are integers, which have no max here", tostring(x)) end
    return reduce == "sum" and dtype or "fp32"
  end
  return dtype == "fp64" and dtype or "fp32"
end

-- Puts x into a buffer when the step is over, in training alone: what all its microbatches and ranks gave, reduced to their
-- sum, mean (the default) or max in a fixed order, the same on every rank. Until then the buffer is what it was. Gradient
-- does not pass, and a step that a GradScaler skips assigns nothing. x has the buffer's shape. options: reduce = "sum",
-- "mean" or "max". update = function(old, x) gives what the buffer gets instead, of the buffer and of the reduced x, which
-- is fp32, or integers where the buffer holds integers too and they are summed; then x may have any shape. It reads
-- buffers and no parameters.
function nn.assign(buffer, x, options)
  local o = prim.table_of(options)
  prim.check_keys("nn.assign", o, "reduce update")
  need_tensor("nn.assign", buffer)
  local shape, whole = need_tensor("nn.assign", x).shape, not prim.is_float(buffer)
  local reduce = o.reduce == nil and "mean" or o.reduce
  if reduce ~= "sum" and reduce ~= "mean" and reduce ~= "max" then
    fail(nil, 'nn.assign: reduce must be "sum", "mean" or "max", not %s', describe(reduce))
  end
  if o.update ~= nil and type(o.update) ~= "function" then
    fail(nil, "nn.assign: update must be a function(old, x), not %s", describe(o.update))
  end
  local n, dtype = nn.numel(x), wide(x, reduce)
  local function finish(kept)
    local all
    if reduce == "max" then
      all = nn.max(nn.reshape(nn.all_gather(kept), nn.ranks(), n), 0)
    elseif reduce == "sum" then
      all = prim.sum_assign(kept)
    else
      local sums = prim.sum_assign(kept)
      all = nn.slice(sums, 0, 0, n) / nn.slice(sums, 0, n)
    end
    all = prim.reshape(all, shape)
    if not whole and (dtype == "int32" or dtype == "int64") then all = nn.cast(all, "fp32") end
    if not o.update then return all end
    return (o.update(buffer, all))
  end
  local kept = prim.begin_assign(buffer, reduce == "mean" and n + 1 or n, dtype, finish)
  if not kept then return end
  local flat = nn.cast(prim.reshape(x, { n }), dtype)
  if reduce == "max" then flat = nn.maximum(kept, flat) end
  if reduce == "mean" then flat = nn.concat({ flat, nn.full({ 1 }, 1, dtype) }, 0) end -- how many gave something
  prim.keep_assign(kept, flat, reduce ~= "max")
end
