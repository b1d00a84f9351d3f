-- expect: frozen_copy_part\.lua:3: nn\.frozen_copy: the copy has no module 1; make both by one function
local nn = require "nn"
nn.frozen_copy(nn.sequential { nn.Linear(4, 8) }, nn.sequential { nn.Linear(4, 8), nn.Linear(8, 4) })
