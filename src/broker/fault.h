/* What can go wrong with a model request, by the codes of protocol.h (R24): one table, and the ways
   that providers tell of it. Pure functions. */
#ifndef BROKER_FAULT_H
#define BROKER_FAULT_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct fault {
    const char *code;
    int host_status; /* when the answer is ours: never one that an SDK or Pi takes as a call to try
                        again */
    bool unrecoverable; /* asking again is pointless until a person changes something */
    const char *says;   /* the beginning of what people read; NULL: whoever noticed it says more */
};

/* Unknown codes are model_unreachable; never NULL. */
const struct fault *fault_find(const char *code);
/* False for codes that are not in the table. */
bool fault_is_unrecoverable(const char *code);
/* A provider's HTTP status that is no success, and what stands in its answer. */
const struct fault *fault_of_answer(int status, struct str body);
/* A provider's word for an error inside a stream, such as "overloaded_error", and its message. */
const struct fault *fault_of_stream(const char *type, const char *message);

/* How long the provider asks to be left alone: its headers retry-after-ms and retry-after (NULL if
   absent; seconds or a date), or the RetryInfo in Google's error. -1 when it does not say. */
int64_t fault_retry_after_ms(const char *after_ms, const char *after, struct str body,
                             int64_t wall_ms);

#endif
