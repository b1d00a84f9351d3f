-- expect: pairs_key\.lua:2: pairs: a key of type table has no place in an order
for k in pairs { [{}] = 1 } do end
