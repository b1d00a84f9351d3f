-- expect: input_dtype\.lua:3: nn.input: no dtype 'int23'; did you mean 'int32'\?
local nn, optim = require "nn", require "optim"
local i = nn.input("int23", { 2, 8 })
