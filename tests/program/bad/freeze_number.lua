-- expect: freeze_number\.lua:3: nn.freeze: expected a module or a parameter, got the number 3
local nn, optim = require "nn", require "optim"
nn.freeze(3)
