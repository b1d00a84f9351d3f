-- expect: :1: heads|assertion\.lua:2: heads do not divide dim
assert(5 % 2 == 0, "heads do not divide dim")
