-- nn: losses.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, check_keys, table_of = prim.nn, prim.op, prim.refuse, prim.check_keys, prim.table_of
local same_sizes, need_tensor, need_integer = prim.same_sizes, prim.need_tensor, prim.need_integer

-- ── losses ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The mean of -log softmax(logits)[target] over the targets of the whole step (all ranks and microbatches), as
-- torch.nn.functional.cross_entropy. logits [...,V], targets int32 [...]. ignore_index: -100.
function nn.cross_entropy(logits, targets, options)
  local o = table_of(options)
  check_keys("nn.cross_entropy", o, "ignore_index")
  need_tensor("cross_entropy", targets)
  if need_tensor("cross_entropy", logits).ndim < 1 then fail(nil, "cross_entropy: the logits %s must be [...,classes]", tostring(logits)) end
  local lead = logits.shape
  table.remove(lead)
  if targets.dtype ~= "int32" or not same_sizes(lead, targets.shape) then
    local other = targets.dtype ~= "int32" and 'declare them as nn.input("int32", ...)' or nil
    fail(other, "cross_entropy: logits %s need targets int32[%s], but these are %s", tostring(logits), table.concat(lead, ","), tostring(targets))
  end
  local ignore = need_integer("cross_entropy", "ignore_index", o.ignore_index == nil and -100 or o.ignore_index)
  if ignore < -2147483648 or ignore > 2147483647 then
    fail(nil, "cross_entropy: ignore_index = %d; targets are int32, which cannot be that", ignore)
  end
  local slot = prim.count(targets, ignore)
  return (op("cross_entropy", { logits = nn.reshape(logits, -1, logits:size(-1)), targets = nn.reshape(targets, -1), ignore = ignore, count = slot }))
end
