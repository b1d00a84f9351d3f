-- expect: misspelt_optim\.lua:3: optim has no field 'Adamw'; did you mean 'AdamW'\?
local nn, optim = require "nn", require "optim"
local x = optim.Adamw {}
