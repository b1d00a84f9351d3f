-- expect: parameter_key\.lua:3: nn.parameter: unknown key 'require_grad'; did you mean 'requires_grad'\?
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { require_grad = false })
