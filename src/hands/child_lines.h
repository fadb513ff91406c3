/* A program whose output is read line by line while it runs, with an eye on the call being
   cancelled and on its time. On the call's own thread. */
#ifndef HANDS_CHILD_LINES_H
#define HANDS_CHILD_LINES_H

#include "hands/tools.h"

enum child_end {
    CHILD_EXITED,
    CHILD_STOPPED, /* on_line had enough */
    CHILD_CANCELLED,
    CHILD_TIMEOUT,
    CHILD_LINE_TOO_LONG
};

struct child_lines {
    char *const *argv;
    const char *cwd; /* NULL: / */
    /* One line without its LF; false ends the program. */
    bool (*on_line)(void *arg, struct str line);
    void *arg;
    /* Filled by child_lines_run: */
    enum child_end end;
    int status;            /* wait status */
    struct buf error_text; /* of its standard error, the first part; to be freed by the caller */
};

/* 0 or the errno of a failed start. */
int child_lines_run(const struct tool_run *run, struct child_lines *c);

#endif
