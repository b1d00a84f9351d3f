-- expect: input_shift\.lua:3: nn.input: shift = -1 is out of range
local nn, optim = require "nn", require "optim"
local i = nn.input("int32", { 2 }, { shift = -1 })
