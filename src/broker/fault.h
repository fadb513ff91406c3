/* What can go wrong with a model request, by the codes of protocol.h (R24): one table, and the ways
   that providers tell of it. Pure functions. */
#ifndef BROKER_FAULT_H
#define BROKER_FAULT_H

#include <stdbool.h>

struct fault {
    const char *code;
    int host_status; /* when the answer is ours: never one that an SDK or Pi takes as a call to try
                        again */
    bool unrecoverable; /* asking again is pointless until a person changes something */
};

/* Unknown codes are model_unreachable; never NULL. */
const struct fault *fault_find(const char *code);
/* A provider's HTTP status that is no success. */
const struct fault *fault_of_status(int status);
/* A provider's word for an error inside a stream, such as "overloaded_error". */
const struct fault *fault_of_stream(const char *type);

#endif
