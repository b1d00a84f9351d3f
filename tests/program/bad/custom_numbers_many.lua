-- expect: custom_numbers_many\.lua:11: twice: 6 numbers; at most 5 fit
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  numbers = { 1, 2, 3, 4, 5, 6 },
}

return part.training(part.net(), function(x)
  return swish(x)
end)
