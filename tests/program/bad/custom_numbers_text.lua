-- expect: custom_numbers_text\.lua:11: twice: number 1 is true
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  numbers = { true },
}

return part.training(part.net(), function(x)
  return swish(x)
end)
