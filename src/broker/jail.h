/* What the broker gives up for good before it serves: core dumps, new privileges, capabilities, and
   every system call it has no use for (above all exec, ptrace, mount and other processes' memory).
   It keeps sockets: it is the one process that dials. */
#ifndef BROKER_JAIL_H
#define BROKER_JAIL_H

#include "base/err.h"

/* Holds for all threads of the process. E_INTERNAL with the step that failed. */
err jail_enter(void);

#endif
