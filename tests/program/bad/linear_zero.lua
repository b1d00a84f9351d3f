-- expect: linear_zero\.lua:3: nn.Linear: the input size = 0; it must be at least 1
local nn, optim = require "nn", require "optim"
local l = nn.Linear(0, 4)
