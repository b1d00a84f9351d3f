-- expect: requires_grad_number\.lua:3: nn\.parameter: requires_grad must be true or false, not the number 0
local nn = require "nn"
local w = nn.parameter({ 4 }, { requires_grad = 0 })
