-- expect: options_unnamed\.lua:3: nn.options: entry 1 without a name
local nn, optim = require "nn", require "optim"
local o = nn.options { 3 }
