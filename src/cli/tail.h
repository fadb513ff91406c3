/* Watching a turn to its end: for a person or as JSON lines. */
#ifndef CLI_TAIL_H
#define CLI_TAIL_H

#include "cli/remote.h"

/* Of every command that watches. */
#define TAIL_OPTIONS                                                                               \
    {"json", NULL, NULL, "print events as JSON, one a line"},                                      \
    {                                                                                              \
        "deltas", NULL, NULL, "with --json: also what is shown while it grows (event_delta …)"   \
    }
#define TAIL_DETAILS                                                                               \
    "Answers go to standard output, all else to standard error. Lost connections and restarts of " \
    "the\nservice are bridged. Ctrl-C ends the watching; the session goes on.\n"                   \
    "Exit status: 0 the turn ended well, 3 it did not (error, interrupted, retries exhausted, "    \
    "budget),\n4 it waits for an answer, 130 Ctrl-C, 1 the command failed."

enum {
    TAIL_ENDED_BADLY = 3,
    TAIL_WAITS = 4,
    TAIL_INTERRUPTED = 130,
};

struct tail {
    const char *session;
    int64_t after;       /* seq */
    const char *message; /* id of the user.message whose turn is waited for; NULL: any */
    bool follow;         /* over the ends of turns, until Ctrl-C */
};
/* Sets r->status. */
err tail_turn(struct remote *r, const struct tail *t);

#endif
