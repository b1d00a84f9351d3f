-- expect: input_fp8\.lua:3: nn.input: inputs of fp8
local nn, optim = require "nn", require "optim"
local i = nn.input("fp8_e4m3", { 2, 8 })
