-- expect: extension_outside\.lua:6: nn.all_gather_extension: source = "\.\./wire\.c" leads out of the model's folder: copy
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "../wire.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
