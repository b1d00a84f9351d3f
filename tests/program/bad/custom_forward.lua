-- expect: custom_forward\.lua:4: nn.custom_op: which function\? Write forward = "name", as it stands in the source
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
}

return part.training(part.net(), function(x)
  return swish(x)
end)
