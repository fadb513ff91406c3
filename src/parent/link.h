/* A role's link to the parent (descriptor 3). parent_call blocks for the reply and may be used from
   any thread; notes arrive on a reader thread of the link through the callback. When the parent is
   gone the process exits: roles never outlive it (sandboxes do). */
#ifndef PARENT_LINK_H
#define PARENT_LINK_H

#include "base/err.h"
#include "base/fd.h"
#include "parent/request.h"

struct parent_link;

/* The callback owns the descriptors it is given and must not block for long. */
typedef void (*parent_note_fn)(void *arg, const struct parent_message *m, int fds[FD_PASS_MAX]);

struct parent_link *parent_link_open(int fd, parent_note_fn on_note, void *arg);
/* Sends `m` (id is set here) and waits for its reply, which replaces *m. Returns the reply's status
   with its text in the error slot. `out_fd` may be NULL; else gets descriptor 0 of the reply or -1.
 */
err parent_call(struct parent_link *link, struct parent_message *m, int *out_fd);
err parent_hello(struct parent_link *link);

#endif
