-- expect: extension_amax\.c:3: pre_all_gather has 3 parameters; .* calls it with 4: write `void pre_all_gather\(const sc_piece \*piece, const float \*stored, const float \*amax, sc_bf16_t \*wire\)`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_amax.c",
  wire = "bf16",
  amax = true,
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
