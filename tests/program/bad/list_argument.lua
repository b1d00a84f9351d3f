-- expect: list_argument\.lua:3: nn.list: expected a list of modules
local nn, optim = require "nn", require "optim"
local m = nn.list(3)
