-- expect: extension_include\.c:3: 'nothing\.h' file not found
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_include.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
