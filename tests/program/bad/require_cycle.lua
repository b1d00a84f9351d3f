-- expect: require_cycle\.lua:2: require: 'require_cycle' is being loaded already
local x = require "require_cycle"
