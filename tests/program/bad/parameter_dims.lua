-- expect: parameter_dims\.lua:3: nn.parameter: a shape of 7 dims
local nn, optim = require "nn", require "optim"
local p = nn.parameter { 1, 1, 1, 1, 1, 1, 1 }
