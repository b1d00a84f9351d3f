-- expect: fp32_init\.lua:3: nn.parameter: init: 1e-46; fp32, in which it is used, has 0 for it: write 0, or a number from 1.18e-38 to 3.4e38
local nn, optim = require "nn", require "optim"
local p = nn.parameter({ 4 }, { init = nn.init.normal(0, 1e-46) })
