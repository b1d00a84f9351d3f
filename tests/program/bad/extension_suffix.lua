-- expect: extension_suffix\.lua:6: nn.all_gather_extension: source = "extension_net.lua": the name of a source file is wanted, ending in \.c
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_net.lua",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
