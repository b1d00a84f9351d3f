-- expect: misspelt_option\.lua:4: no option 'layer'; did you mean 'layers'\?
local nn, optim = require "nn", require "optim"
local o = nn.options { layers = 3 }
local n = o.layer
