/* What the launcher does to itself before it becomes Node. Each step is for the calling,
   single-threaded process and is kept by exec. Nothing can be undone. */
#ifndef HARNESS_CONFINE_H
#define HARNESS_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Where the host's files lie once its mount namespace is made. */
#define CONFINE_NODE "/pi/node"
#define CONFINE_RUNTIME "/pi/runtime"
#define CONFINE_HARNESS "/pi/harness"
#define CONFINE_GATEWAY "/pi/gateway.sock"

struct confine_tree {
    const char *node, *runtime_dir, *harness_dir, *gateway; /* real paths */
};

/* In new user, mount and pid namespaces (user: not when started as root): maps our one uid, shows
   only the tree above, the C library's folders, /dev/null, /dev/urandom and this pid namespace's
   own /proc; all of it read-only. *out_proc says whether /proc could be mounted (nested containers
   forbid it). */
err confine_mounts(const struct confine_tree *tree, bool *out_proc);
err confine_map_ids(unsigned uid,
                    unsigned gid); /* before confine_mounts, in a new user namespace */

/* No capabilities, no new privileges, dies with the parent process. */
err confine_privileges(void);
/* Only reading, and only Node, the runtime, the script's folder, libraries and this process's own
   /proc, by the paths in `tree` (as they are then). Also no TCP, no foreign abstract sockets, no
   signals to others, where the kernel has it. *out_version is Landlock's version, 0 = not there,
   which is no error. After confine_privileges. */
err confine_files(const struct confine_tree *tree, int *out_version);
/* No core, no file can grow, at most node_fd descriptors: descriptor node_fd itself stays open and,
   once closed by exec, can never be made again. */
err confine_limits(int node_fd);
/* The system call filter. Lets exactly execveat(node_fd, "", …, AT_EMPTY_PATH) through, once in
 * effect. */
err confine_syscalls(int node_fd);

#endif
