-- expect: custom_list\.lua:11: nn.custom_op: results must return a list of shapes, not the number 3
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  results = function(x) return 3 end,
}

return part.training(part.net(), function(x)
  return swish(x)
end)
