-- expect: extension_type\.c:4: post_all_gather: parameter y is `int \*`; .*extension_type\.lua:9 calls it with `float \*parameter`: write `void post_all_gather\(const sc_piece \*piece, const sc_bf16_t \*wire, float \*parameter\)`
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_type.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
