-- expect: options_function\.lua:4: nn.options: the example of a is a function
local nn, optim = require "nn", require "optim"
local o = nn.options {
  a = function() end,
}
