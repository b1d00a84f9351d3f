-- expect: custom_operands\.lua:10: twice: 15 operands and 1 results; operands and twice the results are at most 16
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
}

return part.training(part.net(), function(x)
  return swish(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x)
end)
