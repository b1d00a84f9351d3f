-- expect: extension_written\.c:3: pre_all_gather: parameter x is `float \*`, but .* gives it what must not be written: write `const float \*stored`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_written.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
