-- expect: custom_flops_negative\.lua:11: twice: flops must be a number of 0 or more
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  flops = function(x) return -1 end,
}

return part.training(part.net(), function(x)
  return swish(x)
end)
