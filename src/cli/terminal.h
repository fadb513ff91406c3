/* The person's own terminal as that of a process in a sandbox: raw while it runs, its size and its
   signals passed on, and afterwards as it was. One thread. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "cli/command.h"
#include "sandbox/exec.h"

/* From here on signals wait for whoever reads the descriptor: what we made is always taken down,
   and the terminal always put back. */
err terminal_catch_signals(int *out_fd);

typedef err (*terminal_run)(void *arg, const struct exec_request *request, struct exec_ended *out);
/* A login shell. Returns the status to exit with; what failed was told. Standard input is a
   terminal. */
int terminal_talk(const struct invocation *call, int signals, terminal_run run, void *arg);

#endif
