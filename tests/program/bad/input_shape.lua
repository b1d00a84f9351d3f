-- expect: input_shape\.lua:3: nn.input: expected a shape such as \{ 8, 1024 \}, got the number 8
local nn, optim = require "nn", require "optim"
local i = nn.input("int32", 8)
