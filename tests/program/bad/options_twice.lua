-- expect: options_twice\.lua:4: nn.options: called before
local nn, optim = require "nn", require "optim"
local o = nn.options { a = 1 }
local p = nn.options { a = 1 }
