/* From nothing to a running init: clones it into its namespaces, waits until it runs pi-hands.
   Two sides work side by side and talk over one socket pair. The maker sends what the init needs
   (the agent socket, its control groups), then "go" with the root mount and others when it made
   them; the init answers with the text of what failed, or with end of file when exec closed its
   end. */
#ifndef SANDBOX_LINUX_BOOT_H
#define SANDBOX_LINUX_BOOT_H

#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/mounts.h"
#include "sandbox/linux/root.h"
#include "sandbox/state.h"

struct boot {
    /* Known before the init exists: */
    struct root_plan root;
    struct mounts_plan mounts;
    bool privileged;
    bool trial;        /* the init ends instead of running pi-hands */
    uint32_t uid_base; /* privileged */
    uint32_t pids;     /* processes and threads of all inside; 0: as many as control groups allow */
    /* NAME=VALUE of the image, NULL at the end; or NULL. Who the sandbox's user is stays ours. */
    const char *const *env;
    /* Before boot_go, the v2 part of the door before boot_clone: */
    int listen_fd; /* the agent socket; not in a trial */
    int image_fd;  /* in the init: what baseline_open made */
    struct cgroup_door door;
    /* Made by boot_clone: */
    bool counts_processes; /* userns_counts_processes() */
    pid_t pid;
    int pidfd, channel;
};

/* The init exists, prepares what it can alone, and waits. It dies if the maker does before boot_go.
 */
err boot_clone(struct boot *b);
/* Gives it its ids and lets it run; returns when it has become pi-hands, or (a trial) has ended
   well. E_UNAVAILABLE with the init's own words when it failed. */
err boot_go(struct boot *b);
/* Kills and reaps what boot_clone made; closes its descriptors. Safe at any point, also twice. */
void boot_abandon(struct boot *b);
/* Closes the maker's descriptors, the sandbox lives on. */
void boot_release(struct boot *b);

/* Makes what every boot needs and none changes: the system call filter, and pi-hands in sealed
   memory (so that nobody can change what runs, not even through /proc/1/exe). Makers forked from
   this process inherit both. Done by boot_clone where it was not before. Not thread-safe. */
err boot_warm_up(void);

#endif
