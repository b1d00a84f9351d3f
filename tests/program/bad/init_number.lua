-- expect: init_number\.lua:3: nn.init.normal: expected a number, got the string
local nn, optim = require "nn", require "optim"
local i = nn.init.normal(0, "0.02")
