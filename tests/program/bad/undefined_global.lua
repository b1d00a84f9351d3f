-- expect: undefined_global\.lua:4: undefined name 'hiden'; did you mean 'hidden'\?
local nn, optim = require "nn", require "optim"
hidden = 4
local x = hiden * 2
