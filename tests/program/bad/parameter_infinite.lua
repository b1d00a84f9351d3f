-- expect: parameter_infinite\.lua:3: nn\.init\.constant: value must be a number that fp32 holds, not the number inf
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { init = nn.init.constant(1 / 0) })
