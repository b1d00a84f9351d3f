-- expect: parameter_init\.lua:3: nn.parameter: init must come from nn.init.*not the string
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { init = "ones" })
