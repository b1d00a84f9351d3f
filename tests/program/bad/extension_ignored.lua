-- expect: extension_ignored\.lua:12: ignored_params: a\.weight is not gathered, and the extension of .*extension_ignored\.lua:6 gathers the parameters of this unit; leave
local nn = require "nn"
local part = require "extension_net"
local model = part.net()
nn.freeze(model.a)
local extension = nn.all_gather_extension {
  source = "extension_good.c",
  wire = "bf16",
}
nn.fully_shard(model, {
  all_gather = extension,
  ignored_params = "a.weight",
})

return part.training(model)
