-- expect: linear_positional\.lua:3: nn.Linear: expected a table \{ bias init bias_init dtype \}, got true
local nn, optim = require "nn", require "optim"
local l = nn.Linear(4, 4, true)
