-- expect: parameter_infinite\.lua:3: nn.parameter: initial values must be finite
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { init = nn.init.constant(1 / 0) })
