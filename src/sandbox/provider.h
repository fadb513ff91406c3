/* What a sandbox provider does (§10, R30-R32, R51). Providers run in the one-shot `maker` process
   that the parent forks for each verb, never in control: a provider is the only code here that may
   need privilege. Adding one: a file with one `const struct sandbox_provider`, and a row in
   provider.c.

   States: none → creating → stopped → (start) running → (stop) stopped; running → crashed when the
   init died; destroy from any state → none. Truth after a restart is <dir>/spec.json plus the
   init's pid and start time, never memory. */
#ifndef SANDBOX_PROVIDER_H
#define SANDBOX_PROVIDER_H

#include "base/err.h"
#include "base/id.h"
#include "sandbox/mounts.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SANDBOX_IMAGE_MAX 256
#define SANDBOX_REASON_MAX 256
/* Prefix of a snapshot's id: a sandbox that never starts, only lends its files to others. */
#define SANDBOX_SNAPSHOT_ID "snap"
/* Takes the place of a tenant in what a person made without a service; the name follows. */
#define SANDBOX_PERSONAL "cli:"
#define SANDBOX_MEMORY_MIB 512 /* of a sandbox that asks for nothing else */

/* A fixed, validated request: it crosses from control to the parent as it stands. */
struct sandbox_spec {
    char id[ID_MAX];               /* the session's id: one sandbox a session */
    char tenant[ID_MAX];           /* label */
    char image[SANDBOX_IMAGE_MAX]; /* R32: "host", or NAME[:TAG] of the image store */
    uint32_t cpu_milli;            /* 1000 = one cpu; 0 = provider default */
    uint32_t memory_mib;           /* 0 = SANDBOX_MEMORY_MIB */
    uint32_t pids;                 /* 0 = provider default (256) */
    uint32_t disk_mib;             /* 0 = no quota */
    /* Of this start: others than before may be named each time (§6.2, R48). */
    uint32_t mount_count;
    struct sandbox_mount mounts[MOUNTS_MAX];
};

enum sandbox_state {
    SANDBOX_NONE,
    SANDBOX_STOPPED,
    SANDBOX_RUNNING,
    SANDBOX_CRASHED
};

struct sandbox_status {
    enum sandbox_state state;
    char id[ID_MAX], tenant[ID_MAX];
    char image[SANDBOX_IMAGE_MAX];             /* as it was made from */
    int64_t started_at_ms;                     /* wall clock; 0 when not running */
    uint64_t memory_bytes, cpu_us, disk_bytes; /* 0 where not known */
    uint32_t pids;
    bool limits_enforced;            /* R51 */
    char reason[SANDBOX_REASON_MAX]; /* why crashed, or why limits are not enforced */
};

/* What this host lets the provider do; shown by doctor and on the session. */
struct sandbox_caps {
    bool usable;
    bool own_kernel;
    bool limit_memory, limit_cpu, limit_pids, limit_disk;
    bool uid_range;                  /* a range of ids per sandbox, else one */
    char reason[SANDBOX_REASON_MAX]; /* why not usable or what is missing, and how to mend it */
};

/* Where the parent lets it work. Absolute paths; the folders exist. */
struct sandbox_place {
    const char *dir; /* this sandbox's own folder, DATA/sandboxes/<id> */
    const char
        *socket; /* the agent socket to create, <dir>/agent.sock or shorter (SOCKET_PATH_MAX) */
    uid_t socket_owner;  /* control's uid */
    uint32_t uid_base;   /* first of the 65536 ids of this sandbox (root only) */
    const char *runtime; /* build/runtime: rg */
    const char *images;  /* the image store, DATA/images */
    /* R51: what all sandboxes of this data directory may be promised together; 0: not counted. */
    uint64_t memory_mib;
    const char *sandboxes; /* DATA/sandboxes, where it is counted (ledger.h) */
    /* Otherwise a limit that the spec asks for and nothing enforces here is E_INVALID
       (limits_not_enforced). */
    bool allow_unenforced;
    const char *volumes;     /* DATA/volumes; NULL where nothing is mounted */
    const char *allow_mount; /* --allow-mount (mount_allowed_next); NULL: nothing */
};

static inline uint32_t sandbox_memory_mib(const struct sandbox_spec *spec)
{
    return spec->memory_mib ? spec->memory_mib : SANDBOX_MEMORY_MIB;
}

struct sandbox_provider {
    const char *name;
    void (*probe)(struct sandbox_caps *out);
    /* Optional (NULL): does in advance what verbs of this process will need, before it knows which.
     */
    void (*warm_up)(void);
    /* Makes the folders; nothing runs yet. E_CONFLICT if it exists with another spec (mounts
       apart); OK if the same. */
    err (*create)(const struct sandbox_spec *, const struct sandbox_place *);
    /* Idempotent: OK at once when running. Returns when pi-hands has answered HELLO on the socket;
       a half-made sandbox is torn down. Network policy is in force before the first process runs
       (R31). E_QUOTA (host_capacity) when its memory does not fit beside that of the others. */
    err (*start)(const struct sandbox_spec *, const struct sandbox_place *);
    /* All processes gone, files kept. TERM, grace_ms, KILL. Idempotent. */
    err (*stop)(const struct sandbox_spec *, const struct sandbox_place *, uint32_t grace_ms);
    /* Stopped and every trace removed: folder, mounts, cgroups. Idempotent. */
    err (*destroy)(const struct sandbox_spec *, const struct sandbox_place *);
    /* create() with the files of another sandbox of the same image (or image "") as they are now.
       `from` may run: its processes rest meanwhile. E_CONFLICT when it is there already; what is
       half made when it fails or dies counts as not there. *out_live: the other one ran. */
    err (*fork)(const struct sandbox_spec *, const struct sandbox_place *, const char *from_id,
                const struct sandbox_place *from, bool *out_live);
    err (*status)(const struct sandbox_spec *, const struct sandbox_place *,
                  struct sandbox_status *out);
    /* Whether the sandbox in this folder runs, or a verb is at work on it. Never waits. */
    bool (*lives)(const char *dir);
    /* Optional (NULL: this provider makes no images). *out_fd: a TCP socket that listens on
       127.0.0.1:port inside the running sandbox. */
    err (*listen)(const struct sandbox_spec *, const struct sandbox_place *, uint16_t port,
                  int *out_fd);
    /* Optional (NULL: this provider mounts nothing, and refuses to start with mounts). Whether such
       a mount could be made here, whatever the volume, as far as can be told before: E_INVALID
       (MOUNTS_NOT_SUPPORTED, MOUNT_NOT_ALLOWED) says why not. Changes nothing. */
    err (*mount_check)(const struct sandbox_mount *, const struct sandbox_place *);
    /* With mount_check: the bytes on disk of a tenant's volume; 0 when nothing was made yet. */
    err (*volume_measure)(const char *tenant, const char *volume, const struct sandbox_place *,
                          uint64_t *out_bytes);
    /* With mount_check: removes the volume with all that is in it. E_CONFLICT while a sandbox there
       is was last started with it. Idempotent. */
    err (*volume_remove)(const char *tenant, const char *volume, const struct sandbox_place *);
    /* Optional, with listen: the folder that holds what a stopped sandbox wrote over its image, as
       overlayfs writes it, with ids from place->uid_base on (`out` has PATH_MAX bytes). */
    err (*layer)(const struct sandbox_place *, char *out);
};

/* Every provider compiled in, best first, NULL at the end. */
extern const struct sandbox_provider *const sandbox_providers[];
const struct sandbox_provider *sandbox_provider_named(const char *name); /* NULL if unknown */
void sandbox_providers_warm_up(void);
/* `auto` or a name → a usable provider. E_UNAVAILABLE with every reason when none is: never "no
 * sandbox". */
err sandbox_provider_choose(const char *wanted, const struct sandbox_provider **out);

#endif
