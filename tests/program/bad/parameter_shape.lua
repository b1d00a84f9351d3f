-- expect: parameter_shape\.lua:3: nn.parameter: expected a shape such as \{ 768 \}, got the number 4
local nn, optim = require "nn", require "optim"
local p = nn.parameter(4)
