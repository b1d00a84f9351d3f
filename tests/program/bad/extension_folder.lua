-- expect: extension_folder\.lua:6: nn.all_gather_extension: .*bad/extension_folder\.c is no file; give the name of a source file
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_folder.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
