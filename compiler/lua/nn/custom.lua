-- nn: ops in the user's own C.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, fail, describe, check_keys, table_of = prim.nn, prim.refuse, prim.describe, prim.check_keys, prim.table_of
local need_tensor = prim.need_tensor

-- ── the user's own C ─────────────────────────────────────────────────────────────────────────────────────────────────

local function like_first(x) return { x.shape } end

-- local swish = nn.custom_op {
--   source = "swish.c", cuda = "swish.cu",   for the CPU, for GPUs; functions as runtime/sc_extension.h says
--   forward = "swish", backward = "swish_grad",
--   results = function(x) return { x.shape } end,   shapes, or { shape, dtype }; left out: one result, shaped as the first operand
--   flops = function(x) return 4 * x.shape[1] end,  or a number
--   numbers = { 1.5 },                       what both functions find in sc_call.numbers
--   name = "swish" }
function nn.custom_op(options)
  local o = table_of(options)
  check_keys("nn.custom_op", o, "name source cuda forward backward results flops numbers")
  local extension, results, flops, numbers = prim.custom_op(o), o.results or like_first, o.flops or 0, o.numbers or {}
  if type(results) ~= "function" then fail(nil, "nn.custom_op: results must be a function of the operands, not %s", describe(results)) end
  if type(flops) ~= "function" and type(flops) ~= "number" then fail(nil, "nn.custom_op: flops must be a number or a function, not %s", describe(flops)) end
  if type(numbers) ~= "table" then fail(nil, "nn.custom_op: numbers must be a list, not %s", describe(numbers)) end
  return function(...)
    local operands = { ... }
    for i = 1, select("#", ...) do need_tensor(o.name or o.forward, operands[i]) end
    local shapes = results(...)
    if type(shapes) ~= "table" then fail(nil, "nn.custom_op: results must return a list of shapes, not %s", describe(shapes)) end
    local count = type(flops) == "function" and flops(...) or flops
    return prim.custom(extension, operands, shapes, type(count) == "number" and count or -1, numbers)
  end
end
