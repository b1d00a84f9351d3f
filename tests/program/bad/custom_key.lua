-- expect: custom_key\.lua:7: nn.custom_op: unknown key 'backwards'; did you mean 'backward'\?
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  backwards = "x",
}

return part.training(part.net(), function(x)
  return swish(x)
end)
