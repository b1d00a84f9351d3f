/* Where an option of a policy is written.
 * Relies on: policy.h.
 * Relied on by: messages of the front end, the passes and extension/. */
#include "policy.h"

Source setting_source(const Settings *s, const char *key, Source otherwise) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->at[i].key, key)) return s->at[i].src;
    return otherwise;
}
