-- expect: choice_mixed\.lua:3: nn.choice: choice 2 is the number 3, but the first is the string
local nn, optim = require "nn", require "optim"
local o = nn.options { a = nn.choice("x", 3) }
