/* Sandbox verbs: checks every field of a request, keeps which ids each sandbox has, and lets a
   maker do the work. Makers run side by side, but one at a time for a sandbox. Parent's only
   thread. */
#ifndef PARENT_SANDBOXES_H
#define PARENT_SANDBOXES_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "parent/request.h"

#define MAKERS_MAX 8
#define MAKER_TIMEOUT_MS 120000

/* The answer to a request; `m` repeats its verb and id. */
typedef void (*sandboxes_reply)(void *arg, const struct parent_message *m);

struct sandboxes_options {
    const char *data_dir;    /* real path */
    const char *short_dir;   /* of the same, for sockets (data_short_path) */
    const char *control_dir; /* the same as control sees it */
    const char *runtime_dir; /* real path */
    const char *provider;
    uid_t control_uid;
    bool uid_ranges; /* as root: 65536 ids for each sandbox */
    const char *const *role_args;
    sandboxes_reply reply;
    void *arg;
};

struct sandboxes;

struct sandboxes *sandboxes_new(const struct sandboxes_options *options);
void sandboxes_free(struct sandboxes *s); /* makers under way finish unheard */
/* Answers by the callback, now or later. */
void sandboxes_request(struct sandboxes *s, const struct parent_message *m, int64_t now_ms);
/* Descriptors to poll for reading, MAKERS_MAX at most. */
size_t sandboxes_poll(const struct sandboxes *s, struct pollfd *out);
void sandboxes_readable(struct sandboxes *s, int fd);
void sandboxes_exited(struct sandboxes *s, pid_t pid, int64_t now_ms); /* any pid */
/* Ends makers that ran too long. Returns when to call again, INT64_MAX if never. */
int64_t sandboxes_tick(struct sandboxes *s, int64_t now_ms);
/* Whoever asked is gone: what waits is dropped, what runs finishes unheard. */
void sandboxes_forget(struct sandboxes *s);
/* E_INVALID unless the request is one we would pass to a provider (exported for tests). */
err sandboxes_check(uint32_t verb, const struct sandbox_spec *spec);

#endif
