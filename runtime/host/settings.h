/* What a run was given: kept in the index of its states, taken over by a run that resumes one, compared with it.
 * Relies on: run.h, jansson.
 * Relied on by: run. */
#ifndef HOST_SETTINGS_H
#define HOST_SETTINGS_H

#include "run.h"

/* After the state was opened and before anything depends on the options: refuses another optimizer's state. Each option
 * that was not given gets the value that the saved run had, where the build has that option; says which differ from the
 * model's. Nothing changes where the state says nothing (it was saved before settings were kept). */
void settings_take(Run *run);
/* When the data is open too: a note for each thing that differs from the saved run, and what that means. */
void settings_tell(const Run *run);
/* The run's settings as an object of JSON, in new memory, for the index of the states that it saves. Reads samples of
 * the token files; dies where they cannot be read. */
char *settings_text(const Run *run);

#endif
