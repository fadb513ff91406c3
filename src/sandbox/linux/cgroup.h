/* Limits through control groups: version 2 where it has the controller, else version 1, else none,
   said so. One folder pi-managed/<id> per hierarchy that limits something. As root below the
   hierarchy's top; as a plain user below the highest group that was delegated to us. */
#ifndef SANDBOX_LINUX_CGROUP_H
#define SANDBOX_LINUX_CGROUP_H

#include "sandbox/state.h"

struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t pids;
    uint32_t cpu_milli; /* 0: no limit */
};

/* Limits that could not be set. */
#define CGROUP_NO_MEMORY 1u
#define CGROUP_NO_PIDS 2u
#define CGROUP_NO_CPU 4u

struct cgroup_usage {
    uint64_t memory_bytes, cpu_us;
    uint32_t pids;
    bool out_of_memory; /* a process was killed for it */
};

/* Sets limit_* and, when one is missing, a reason with the remedy (else reason is ""). */
void cgroup_probe(struct sandbox_caps *out);
/* Makes the groups and sets the limits; fills run->cgroups. Besides those that limit something
   there is a v2 group wherever we may make one: it can be frozen, and it counts cpu time; without
   it a v1 group of cpuacct counts. Returns CGROUP_NO_…: the caller decides (R51). */
unsigned cgroup_make(const char *id, const struct cgroup_limits *limits, struct state_run *run);

/* The way into a sandbox's groups. Moving another process costs a grace period of the kernel (10 ms
   and more); being born into a v2 group, and a single thread moving itself in v1, cost next to
   nothing. */
struct cgroup_door {
    int v2;                    /* folder, for clone3 with CLONE_INTO_CGROUP; -1: none */
    int v1[STATE_CGROUPS_MAX]; /* `tasks` files, for cgroup_join; -1: none */
    const char *v2_path;       /* points into the run */
};
/* True when there will be a v2 group: it must then be there before the init. */
bool cgroup_by_birth(void);
extern const struct cgroup_door cgroup_door_none;
err cgroup_open(const struct state_run *run, struct cgroup_door *out);
void cgroup_close(struct cgroup_door *door);
/* The `tasks` files, for the init; returns how many. */
size_t cgroup_door_fds(const struct cgroup_door *door, int out[STATE_CGROUPS_MAX]);
/* Called by the sandbox's init itself, before it starts anything. */
err cgroup_join(int tasks_fd);
/* The slow way, for kernels without clone3: moves `pid` into the v2 group. */
err cgroup_move(const struct cgroup_door *door, pid_t pid);
void cgroup_usage(const struct state_run *run, struct cgroup_usage *out);
/* Stops every process of the sandbox, or lets them go on; none of them notices. *out_frozen false:
   there is no v2 group, nothing was done. E_TIMEOUT when they do not come to rest (and then they go
   on). */
err cgroup_freeze(const struct state_run *run, bool *out_frozen);
void cgroup_thaw(const struct state_run *run);
bool cgroup_can_freeze(const struct state_run *run);
/* Removes the groups recorded in `run` and those that bear this id wherever we would make them
   (left by a maker that died before it could record). Whatever still runs in them is killed. */
err cgroup_remove(const char *id, const struct state_run *run);

#endif
