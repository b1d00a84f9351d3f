-- expect: list_entry\.lua:3: nn.list: entry 1 is the number 3; entries are modules
local nn, optim = require "nn", require "optim"
local m = nn.list { 3 }
