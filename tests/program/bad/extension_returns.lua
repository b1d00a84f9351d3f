-- expect: extension_returns\.c:4: post_all_gather returns `float`; write `void post_all_gather\(.*\)` \(or int64_t: how many elements it has written, which is checked when it runs\)
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
local extension = nn.all_gather_extension {
  source = "extension_returns.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
})

return part.training(model)
