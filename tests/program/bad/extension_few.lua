-- expect: extension_few\.c:3: pre_all_gather has 2 parameters; .*extension_few\.lua:9 calls it with 3: write `void pre_all_gather
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_few.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
