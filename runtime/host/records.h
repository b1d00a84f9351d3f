/* Records from standard input: any program can feed a run.
 * Relies on: sc.h, dtype, target (barrier).
 * Relied on by: loader. */
#ifndef HOST_RECORDS_H
#define HOST_RECORDS_H

#include "../target.h"

/* One record is one global microbatch: each input in declared order, raw little-endian, its first dimension the world's
 * (world × the declared one). A step takes `accumulate` records. Rank 0 reads them into memory that all ranks share. */
typedef struct Records Records;
/* Before ranks start. limit: exclusive bound of tokens where an input has none of its own; 0: not known. */
Records *records_open(const sc_build *b, int accumulate, int64_t limit, int fd);
void records_close(Records *q);
void records_skip(Records *q, int64_t samples, int64_t batch); /* of a resumed run: those that the saved run has seen */
/* The next step's. Cut short where a signal asks for something (sc_asked): what was read stays for the next call. */
typedef enum { RECORDS_READ, RECORDS_ENDED, RECORDS_CUT_SHORT } RecordsStep;
RecordsStep records_step(Records *q, sc_rank *r, int64_t step);
sc_dtype input_record_dtype(const sc_input_info *in); /* as it stands in records */
/* Whether an integer input takes x: below its limit, or `limit` where it comes from tokens and has none of its own; or
 * what a loss ignores. *bound: the limit that holds, 0: none. */
bool input_takes(const sc_build *b, int input, int64_t limit, int64_t x, int64_t *bound);
void records_take(const Records *q, int place, int64_t micro, int input, void *dst);
int64_t records_bytes(const Records *q);

#endif
