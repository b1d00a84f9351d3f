-- expect: debug\.lua:2: 'debug' does not exist here
local r = debug.getregistry()
