-- expect: require_nothing\.lua:2: require: no module 'nm', there is no file .*nm.lua; did you mean 'nn'\?
local x = require "nm"
