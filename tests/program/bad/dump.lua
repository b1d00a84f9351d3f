-- expect: dump\.lua:2: string has no field 'dump'
local s = string.dump(print)
