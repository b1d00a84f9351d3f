-- expect: extension_value\.c:3: pre_all_gather: parameter x is `float`; .* calls it with `const float \*stored`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_value.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
