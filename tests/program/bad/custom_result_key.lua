-- expect: custom_result_key\.lua:11: twice: results: unknown key 'type'; did you mean 'dtype'
local nn = require "nn"
local part = require "extension_net"
local swish = nn.custom_op {
  source = "extension_good.c",
  forward = "twice",
  results = function(x) return { { shape = { 2, 8 }, type = "fp32" } } end,
}

return part.training(part.net(), function(x)
  return swish(x)
end)
