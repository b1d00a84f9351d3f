-- expect: extension_cuda\.lua:6: nn.all_gather_extension needs a source for the cuda target: write cuda = "file\.cu", or build with --target cpu
-- args: --target cuda
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
