-- expect: extension_empty\.lua:6: nn.all_gather_extension: .*bad/extension_empty\.c is empty; write the functions into it
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_empty.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
