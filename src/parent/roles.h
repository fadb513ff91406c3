/* Starts one child process: this same program again, in a role, with an empty environment, its link
   on descriptor 3 and nothing else open. As root a role gets its own uid and a mount namespace in
   which its files lie at short fixed paths under ROLE_ROOT. Parent's only thread. */
#ifndef PARENT_ROLES_H
#define PARENT_ROLES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#define ROLE_ROOT "/run/pi-managed" /* as root; otherwise roles see the real paths */
#define ROLE_ARGS_MAX 24

struct role_bind {
    const char *from; /* a folder, file or socket */
    const char *name; /* where it lies beneath ROLE_ROOT */
    bool writable;    /* else read-only; never setuid, never devices */
};

struct role_start {
    const char *name;        /* --role NAME */
    const char *const *args; /* further arguments, NULL at the end; may be NULL */
    int link;                /* becomes descriptor 3; the caller keeps its copy */
    bool separate;           /* own uid and mounts as below; else as the parent is */
    bool confined;           /* no capabilities, nothing regained by exec, dies with the parent */
    bool no_network;         /* as root: a network namespace with nothing in it */
    uid_t uid;               /* also the gid; only with `separate` */
    const struct role_bind *binds;
    size_t bind_count;
};

err role_spawn(const struct role_start *start, pid_t *out_pid);
/* True when this process may give roles their own uid and mounts (tried out in a child). */
bool roles_can_separate(uid_t uid_base);
/* Called first in the child, by cli/main.c: no core dumps, no reading by others of our uid. */
void role_enter(const char *name);

#endif
