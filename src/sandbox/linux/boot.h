/* From nothing to a running init: clones it into its namespaces, waits until it runs pi-hands.
   Two sides talk over one socket pair: the maker says "go" (with the root mount when it made one),
   the init answers with the text of what failed, or with end of file when exec closed its end. */
#ifndef SANDBOX_LINUX_BOOT_H
#define SANDBOX_LINUX_BOOT_H

#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/root.h"
#include "sandbox/state.h"

struct boot {
    struct root_plan root;
    bool privileged;
    uint32_t uid_base; /* privileged */
    int listen_fd;     /* the agent socket, or -1: only a trial, the init ends instead of running
                          pi-hands */
    struct cgroup_door door;
    /* Made by boot_clone: */
    pid_t pid;
    int pidfd, channel;
};

/* The init exists and waits. It dies if the maker does before boot_go. */
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
