-- expect: extension_wire_count\.lua:7: wire 1: count = 5000; at most 4096 elements fit
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = { { dtype = "bf16", count = 5000 } },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
