-- expect: custom_same\.c:3: twice is defined at .*extension_good\.c:11 too: make one of the two static
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
}
local other = nn.custom_op { source = "custom_same.c", forward = "twice" }

return part.training(part.net(), function(x)
  return other(swish(nn.detach(x)))
end)
