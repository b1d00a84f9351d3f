-- expect: extension_size\.c:3: pre_all_gather: parameter w is \[\]\[2\], and what .*extension_size\.lua:9 gives it is 4 elements that stand together; write `sc_bf16_t \(\*wire\)\[4\]`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_size.c",
  wire = { { dtype = "bf16", count = 4, every = 2 } },
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
