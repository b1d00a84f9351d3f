-- expect: choice_table\.lua:3: nn.choice: choice 1 is a table
local nn, optim = require "nn", require "optim"
local o = nn.options { a = nn.choice({}) }
