-- expect: input_scalar\.lua:3: nn.input: an input needs a first dimension
local nn, optim = require "nn", require "optim"
local i = nn.input("int32", {})
