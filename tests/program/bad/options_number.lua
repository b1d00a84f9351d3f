-- expect: options_number\.lua:3: nn.options: expected a table
local nn, optim = require "nn", require "optim"
local o = nn.options(3)
