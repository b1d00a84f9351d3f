-- expect: init_range\.lua:3: nn\.init\.uniform: low = 1 is above high = 0
local nn = require "nn"
local w = nn.parameter({ 4 }, { init = nn.init.uniform(1, 0) })
