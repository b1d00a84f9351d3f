-- expect: require_path\.lua:2: require: '../../../etc/passwd' is no module name
local x = require "../../../etc/passwd"
