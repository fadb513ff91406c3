/* What is written about one sandbox in its own folder: spec.json (the request it was made from,
   durable) and run.json (the init that runs, if any). Together with the kernel's word on that init
   they are the whole truth after a restart; nothing about a sandbox lives only in memory. Maker
   process only, under the lock. */
#ifndef SANDBOX_STATE_H
#define SANDBOX_STATE_H

#include "sandbox/provider.h"

#define STATE_CGROUPS_MAX 6
#define STATE_BOOT_ID_MAX 40
#define STATE_PATH_MAX 512

/* Names one process for good: pid alone would be reused, start ticks alone restart with the
 * machine. */
struct state_init {
    pid_t pid;
    uint64_t start_ticks; /* /proc/<pid>/stat field 22 */
    char boot_id[STATE_BOOT_ID_MAX];
};

struct state_run {
    struct state_init init;
    int64_t started_at_ms; /* wall clock */
    bool limits_enforced;
    char limits_reason[SANDBOX_REASON_MAX]; /* "" when enforced */
    unsigned cgroup_count;
    char cgroups[STATE_CGROUPS_MAX][STATE_PATH_MAX]; /* absolute folders made for it */
};

/* Takes the sandbox's lock: one verb at a time. E_NOT_FOUND when the folder does not exist. Held
   until the descriptor is closed in this process and every child that inherited it. */
err state_lock(const char *dir, int *out_fd);
/* True when a verb is at work on it. */
bool state_is_locked(const char *dir);

/* Apart from mounts, which are of one start. */
bool state_spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b);
bool state_mounts_equal(const struct sandbox_spec *a, const struct sandbox_spec *b);
err state_write_spec(const char *dir, const struct sandbox_spec *spec);
err state_read_spec(const char *dir,
                    struct sandbox_spec *out); /* E_NOT_FOUND: not created, or damaged */
err state_write_run(const char *dir, const struct state_run *run);
err state_read_run(const char *dir, struct state_run *out); /* E_NOT_FOUND: not started */
err state_remove_run(const char *dir);

/* Parsers of the two files (fuzz targets). Unknown members are ignored, wrong types are E_INVALID.
 */
err state_parse_spec(struct str text, struct sandbox_spec *out);
err state_parse_run(struct str text, struct state_run *out);

#endif
