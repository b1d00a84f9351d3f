-- expect: frozen_copy_module\.lua:3: nn\.frozen_copy: expected the copy and the module that it copies, got a table and a module
local nn = require "nn"
nn.frozen_copy({}, nn.Linear(4, 8))
