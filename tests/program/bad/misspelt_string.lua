-- expect: misspelt_string\.lua:3: string has no field 'formt'; did you mean 'format'\?
local nn, optim = require "nn", require "optim"
local s = ("%d"):formt(3)
