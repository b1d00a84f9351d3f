-- expect: module_name\.lua:3: nn.module: expected a name
local nn, optim = require "nn", require "optim"
local m = nn.module(3)
