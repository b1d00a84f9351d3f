-- expect: extension_experts\.lua:14: all_gather: an extension gathers no experts that a mesh spreads \(experts\.experts\.gate_up_proj\); leave out the one or the other
-- args: --world 2
local nn = require "nn"
local part = require "extension_net"
local model = nn.module "Net"
model.experts = nn.MoE(8, 8, { experts = 4, top = 2 })
function model:forward(x)
  local y = self.experts(x)
  return y
end
nn.fully_shard(model, {
  mesh = nn.mesh { expert = 2 },
  -- the gather
  all_gather = nn.all_gather_extension { source = "extension_good.c", wire = "bf16" },
})

return part.training(model)
