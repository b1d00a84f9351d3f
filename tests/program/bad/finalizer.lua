-- expect: finalizer\.lua:2: setmetatable: __gc does not exist here
setmetatable({}, { __gc = function() end })
