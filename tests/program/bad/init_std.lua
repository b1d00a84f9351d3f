-- expect: init_std\.lua:3: nn\.init\.normal: std must be a number of at least 0, not the number -0\.02
local nn = require "nn"
local w = nn.parameter({ 4 }, { init = nn.init.normal(0, -0.02) })
