-- expect: extension_array\.c:4: post_all_gather: parameter y is \[64\], and what .* gives it is one element after the other, as many as there are; write `float \*parameter`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_array.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
