-- expect: init_fp16\.lua:3: nn\.parameter: fp16 cannot hold the number 70000;
local nn = require "nn"
local w = nn.parameter({ 4 }, { init = nn.init.constant(70000), dtype = 'fp16' })
