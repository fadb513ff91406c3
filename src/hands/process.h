/* Child processes of pi-hands. It is pid 1 of the sandbox, so it also reaps every orphan; a child
   that a caller owns is left to that caller until process_reap(), which keeps its pid (and group
   id) from being used again under its feet. Any thread. */
#ifndef HANDS_PROCESS_H
#define HANDS_PROCESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of the processes that a sandbox may have, those that only pi-hands can start. */
#define PROCESS_RESERVE 8

struct process_spec {
    char *const *argv;
    const char *cwd;     /* NULL: / */
    char *const *env;    /* process_env_new() */
    int in, out, err_fd; /* -1: /dev/null; they reach the child as 0, 1 and 2 */
    const char *tty;     /* path of a terminal that takes the place of all three, or NULL */
};

struct process {
    pid_t pid; /* also its session and group */
    int pidfd; /* readable once it exited */
};

/* Own session, default signals, nothing inherited but the three descriptors. 0 or an errno. */
int process_spawn(const struct process_spec *spec, struct process *out);
/* Waits for the exit if need be, frees the pid and closes the pidfd. Returns the wait status. */
int process_reap(struct process *p);
/* True while anything lives in the group. After process_reap() too. */
bool process_group_alive(pid_t group);
void process_kill_group(pid_t group, int signal);

/* Reaps whatever nobody owns. Call on SIGCHLD. False when there are no children left at all. */
bool process_reap_orphans(void);
/* KILL to every group a caller owns (the program ends and is not pid 1). */
void process_kill_all(void);

/* The environment of children (NULL-terminated, to be freed with process_env_free): sane defaults,
   then what pi-hands itself was given, then `extra` ("NAME=value", NULL-terminated, may be NULL);
   never PI_*. */
char **process_env_new(char *const *extra);
void process_env_free(char **env);
/* HOME of the tools: what `~` means. */
const char *process_home(void);

/* Exit code as a shell reports it: 128 + n for signal n. */
int process_exit_code(int status);

#endif
