-- expect: extension_align\.lua:8: nn.all_gather_extension: align = "column"; it is "element" or "row"
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = "bf16",
  align = "column",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
