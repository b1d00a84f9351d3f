-- expect: custom_backward\.lua:10: twice has no backward, and trainable parameters lie upstream of it; add backward = "function" to the nn.custom_op at .*custom_backward\.lua:4, or put nn.detach
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
}

return part.training(part.net(), function(x)
  return swish(x)
end)
