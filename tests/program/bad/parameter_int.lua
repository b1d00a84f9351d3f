-- expect: parameter_int\.lua:3: nn.parameter: a parameter of dtype int32
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { dtype = "int32" })
