-- expect: extension_shared_two\.lua:7: all_gather: a\.weight is shared with the unit of .*extension_shared_two\.lua:9 .*by another extension
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
model.b.weight = model.a.weight
nn.fully_shard(model.a, {
  all_gather = nn.all_gather_extension { source = "extension_good.c", wire = "bf16" },
})
nn.fully_shard(model.b, {
  all_gather = nn.all_gather_extension { source = "extension_good.c", wire = "bf16" },
})
nn.fully_shard(model)

return part.training(model)
