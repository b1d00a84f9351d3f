-- expect: custom_results\.lua:4: nn.custom_op: results must be a function of the operands, not a table
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  results = { { 2, 8 } },
}

return part.training(part.net(), function(x)
  return swish(x)
end)
