-- expect: :1: the file describes no training: it must end with
local nn, optim = require "nn", require "optim"
