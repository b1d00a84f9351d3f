-- expect: init_number\.lua:3: nn\.init\.normal: std must be a number of at least 0, not the string
local nn, optim = require "nn", require "optim"
local i = nn.init.normal(0, "0.02")
