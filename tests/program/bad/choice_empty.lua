-- expect: choice_empty\.lua:3: nn.choice: give the choices
local nn, optim = require "nn", require "optim"
local o = nn.options { a = nn.choice() }
