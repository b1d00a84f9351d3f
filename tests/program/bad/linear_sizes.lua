-- expect: linear_sizes\.lua:3: nn.Linear: the output size must be a whole number, not nil
local nn, optim = require "nn", require "optim"
local l = nn.Linear(4)
