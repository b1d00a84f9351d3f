-- nn: losses.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, op, fail, check_keys, table_of = prim.nn, prim.op, prim.refuse, prim.check_keys, prim.table_of
local same_sizes, need_tensor, need_integer = prim.same_sizes, prim.need_tensor, prim.need_integer

-- ── losses ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The mean of (x - y)², of two tensors of one shape, as torch.nn.functional.mse_loss.
function nn.mse_loss(x, y)
  if not same_sizes(need_tensor("mse_loss", x).shape, need_tensor("mse_loss", y).shape) then
    fail(nil, "mse_loss: %s and %s must be of one shape", tostring(x), tostring(y))
  end
  local d = x - y
  return nn.mean(d * d)
end
