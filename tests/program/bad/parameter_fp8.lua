-- expect: parameter_fp8\.lua:3: nn.parameter: parameters are not stored in fp8
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { dtype = "fp8_e4m3" })
