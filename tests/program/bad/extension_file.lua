-- expect: extension_file\.lua:6: nn.all_gather_extension: there is no file .*bad/nothing\.c; files lie in the model's folder
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "nothing.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
