-- expect: custom_numbers\.lua:4: nn.custom_op: numbers must be a list, not the number 2
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  numbers = 2,
}

return part.training(part.net(), function(x)
  return swish(x)
end)
