-- expect: custom_flops\.lua:4: nn.custom_op: flops must be a number or a function, not true
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  flops = true,
}

return part.training(part.net(), function(x)
  return swish(x)
end)
