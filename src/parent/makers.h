/* Sandbox verbs: checks every field of a request, keeps which ids each sandbox has, and lets a
   maker do the work. Makers run side by side, but one at a time for a sandbox. Parent's only
   thread. */
#ifndef PARENT_MAKERS_H
#define PARENT_MAKERS_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "parent/request.h"

#define MAKERS_MAX 8
#define MAKERS_BUILD_ID "build" /* prefix of the sandboxes in which images are made */
#define MAKER_TIMEOUT_MS 120000
#define MAKER_IMAGE_TIMEOUT_MS PARENT_IMAGE_TIMEOUT_MS

/* The answer to a request; `m` repeats its verb and id. */
typedef void (*makers_reply)(void *arg, const struct parent_message *m);

struct makers_options {
    const char *data_dir;    /* real path */
    const char *short_dir;   /* of the same, for sockets (data_short_path) */
    const char *control_dir; /* the same as control sees it */
    const char *runtime_dir; /* real path */
    const char *provider;
    uint64_t memory_mib; /* R51: for all sandboxes together; 0: not counted */
    bool allow_unenforced;
    uid_t control_uid;
    bool uid_ranges; /* as root: 65536 ids for each sandbox */
    const char *const *role_args;
    const char *allow_images; /* config.allow_images */
    const char *allow_mount;  /* config.allow_mount */
    bool limit_memory;        /* the provider can */
    makers_reply reply;
    /* A maker's PARENT_NOTE_EGRESS, for the broker; the descriptors are borrowed. */
    void (*way_out)(void *arg, const struct parent_message *m, const int *fds, size_t n);
    void *arg;
};

struct makers;

struct makers *makers_new(const struct makers_options *options);
void makers_free(struct makers *s); /* makers under way finish unheard */
/* Answers by the callback, now or later. */
void makers_request(struct makers *s, const struct parent_message *m, int64_t now_ms);
/* Descriptors to poll for reading, MAKERS_MAX at most. */
size_t makers_poll(const struct makers *s, struct pollfd *out);
void makers_readable(struct makers *s, int fd, int64_t now_ms);
/* Any pid; status as of waitpid. */
void makers_exited(struct makers *s, pid_t pid, int status, int64_t now_ms);
/* Ends makers that ran too long, and keeps spare ones waiting for work. Returns when to call again,
   INT64_MAX if never. */
int64_t makers_tick(struct makers *s, int64_t now_ms);
/* Whoever asked is gone: what waits is dropped, what runs finishes unheard. */
void makers_forget(struct makers *s);
/* E_INVALID unless the request is one we would pass to a provider (exported for tests). */
err makers_check(uint32_t verb, const struct sandbox_spec *spec);
/* The same of the whole message. */
err makers_check_message(const struct parent_message *m);
/* A verb about a mount or a volume, not about a sandbox. */
bool makers_is_of_mounts(uint32_t verb);

#endif
