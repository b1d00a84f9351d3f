-- expect: optional_type\.lua:3: nn.optional: expected .*got the string \"nubmer\"; did you mean 'number'\?
local nn, optim = require "nn", require "optim"
local o = nn.options { a = nn.optional "nubmer" }
