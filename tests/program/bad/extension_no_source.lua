-- expect: extension_no_source\.lua:5: nn.all_gather_extension: which file\? Give source = "file\.c" for the CPU, cuda = "file\.cu"
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
