/* User namespaces: who the ids inside are outside. */
#ifndef SANDBOX_LINUX_USERNS_H
#define SANDBOX_LINUX_USERNS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define USERNS_IDS 65536u /* ids per sandbox in root mode */

/* True when this process may map id ranges and mount for others: root with its capabilities. */
bool userns_is_privileged(void);
/* Whether a plain user's sandboxes have more than one id: his subordinate ones (/etc/subuid,
   /etc/subgid), given by newuidmap and newgidmap. All his sandboxes have the same. Tried out. */
bool userns_range_works(void);
/* Whether a limit of processes (RLIMIT_NPROC) set by the init of a sandbox holds for all inside,
   without any control group: a plain user's, where every process has the same user and the kernel
   counts each sandbox for itself (Linux 5.14). */
bool userns_counts_processes(void);
/* Gives the namespace of `pid` its ids: 0…65535 → base… */
err userns_map_range(pid_t pid, uint32_t base);
/* 0 is ours; the others are those subordinate to us, if we have any. */
err userns_map_self(pid_t pid);
/* Runs `fn` as root over the files of sandboxes: as root in this process; as a plain user in a
   child, in a user namespace with the ids that his sandboxes have. Returns what `fn` did; of what
   it changes only *out comes back. */
err userns_call(err (*fn)(void *arg, uint64_t *out), void *arg, uint64_t *out);
/* A namespace in which nobody is, for idmapped mounts: `count` ids from uid and gid on are those
   from `outside` on. As root. */
err userns_make(uint32_t uid, uint32_t gid, uint32_t outside, uint32_t count, int *out_fd);
/* A descriptor of the namespace of `pid`, for idmapped mounts. */
err userns_open(pid_t pid, int *out_fd);

#endif
