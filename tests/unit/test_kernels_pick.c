/* pick: the row of logits that the record names, from any strides and dtype.
 * Relies on: kernel_check.h, runtime/cpu's k_*.c.
 * Relied on by: make test. */
#include "kernel_check.h"

Test(pick, one_position_in_fp32) {
    FOR_DTYPES {
        for (int turned = 0; turned < 2; turned++)
            for (int64_t position = 0; position < 5; position += 2) {
                int64_t shape[] = {1, 5, 3001}, stride[] = {15005, 1, 5}; /* turned: [V,S] seen as [S,V] */
                sc_tensor x = filled(tensor(d, 3, shape, turned ? stride : NULL), 3, 1), y = T_(FP32, 3001);
                record.position = position;
                run(pick, .logits = x, .state = y);
                for (int64_t v = 0; v < 3001; v++) cr_assert_eq(val(&y, v), (float)val(&x, position * 3001 + v));
            }
    }
    record.position = 0;
}
