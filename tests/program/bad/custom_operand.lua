-- expect: custom_operand\.lua:10: twice: expected a tensor, got the number 3
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
}

return part.training(part.net(), function(x)
  return swish(3)
end)
