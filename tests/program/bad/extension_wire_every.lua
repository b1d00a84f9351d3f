-- expect: extension_wire_every\.lua:7: wire 1: every = 3; a power of two up to 256 is wanted
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = { { dtype = "bf16", every = 3 } },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
