-- expect: extension_many_wires\.lua:7: nn.all_gather_extension: 5 wires; at most 4 fit
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = { {}, {}, {}, {}, {} },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
