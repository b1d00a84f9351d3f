-- expect: custom_shape\.c:3: twice: parameter y is \[4\]\[8\], and what .*custom_shape\.lua:10 gives it is fp32\[2,8\]; write `float \*y`
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "custom_shape.c",
  forward = "twice",
}

return part.training(part.net(), function(x)
  return swish(nn.detach(x))
end)
