-- expect: extension_wire_dtype\.lua:5: wire 1: which dtype\? Write \{ dtype = "bf16" \}
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = { { count = 2 } },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
