/* Harness hosts: a confined child per host, its socket for control, its gateway socket for the
   broker. Parent's only thread. */
#ifndef PARENT_HOSTS_H
#define PARENT_HOSTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"

#define HOSTS_MAX 64

struct hosts_options {
    const char *data_dir;  /* real path: run/ holds the gateway sockets */
    const char *short_dir; /* of the same, for socket paths */
    const char *runtime_dir, *harness_dir;
    bool separate;   /* own uid and mounts for each host */
    uid_t first_uid; /* of HOSTS_MAX uids */
    const char *const *role_args;
};

struct host {
    uint32_t id; /* 0: free slot */
    pid_t pid;
    int gateway;         /* the listening socket, kept for the next broker */
    char tenant[ID_MAX]; /* "": spare */
};

struct hosts {
    struct hosts_options o;
    uint32_t last_id;
    struct host slots[HOSTS_MAX];
};

void hosts_init(struct hosts *h, const struct hosts_options *options);
/* `tenant` is a tenant id, or "" for a spare host. *out_fd is control's end of the host's stream
   socket, the caller's. */
err hosts_start(struct hosts *h, const char *tenant, const struct host **out, int *out_fd);
/* Gives a spare host its tenant, once: else E_CONFLICT. */
err hosts_bind(struct hosts *h, uint32_t id, const char *tenant, const struct host **out);
err hosts_stop(struct hosts *h, uint32_t id); /* KILL; its exit follows */
void hosts_stop_all(struct hosts *h);
/* NULL if the pid is no host. Copies the slot to *out and frees it. */
bool hosts_exited(struct hosts *h, pid_t pid, struct host *out);

#endif
