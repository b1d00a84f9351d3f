-- expect: extension_read\.c:3: pre_all_gather: parameter w is `const sc_bf16_t \*`, but .* expects the result there: write `sc_bf16_t \*wire`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_read.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
