-- expect: custom_numel\.c:3: twice: parameter y is \[15\], and what .* gives it is fp32\[2,8\]
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "custom_numel.c",
  forward = "twice",
}

return part.training(part.net(), function(x)
  return swish(nn.detach(x))
end)
