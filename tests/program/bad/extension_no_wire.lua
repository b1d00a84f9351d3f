-- expect: extension_no_wire\.lua:5: nn.all_gather_extension: wire says what travels: a dtype, such as "bf16"
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_good.c",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
