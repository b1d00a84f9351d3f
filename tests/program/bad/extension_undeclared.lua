-- expect: extension_undeclared\.c:5: call to undeclared function 'narrow'
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_undeclared.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
