-- expect: extension_wire_piece\.lua:7: wire 1: every counts elements, and this one counts pieces
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = { { dtype = "bf16", per = "piece", every = 2 } },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
