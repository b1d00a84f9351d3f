-- expect: init_truncated\.lua:3: nn\.init\.trunc_normal: std must be a number of at least 0, not the number -1
local nn = require "nn"
local w = nn.parameter({ 4 }, { init = nn.init.trunc_normal(0, -1) })
