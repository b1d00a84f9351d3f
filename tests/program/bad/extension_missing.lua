-- expect: extension_missing\.c:1: there is no function post_all_gather in this file, which .*extension_missing\.lua:5 wants for its post; did you mean 'post_all_gathered'\?
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_missing.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
