-- expect: linear_key\.lua:3: nn.Linear: unknown key 'biass'; did you mean 'bias'\?
local nn, optim = require "nn", require "optim"
local l = nn.Linear(4, 4, { biass = false })
