-- expect: extension_wire_per\.lua:7: wire 1: per = "row"; it is "element" or "piece"
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = { { dtype = "bf16", per = "row" } },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
