/* What the routes that copy out of a session's sandbox share: which sandbox, which folder, and
   starting it for the time of the copy. */
#ifndef API_COPIES_H
#define API_COPIES_H

#include "api/feed.h"
#include "sandbox/copyout.h"
#include "session/store.h"

struct copies;

/* Of this session's sandbox. NULL-safe free. Needs nothing of the request afterwards. */
struct copies *copies_new(struct ctx *ctx, const struct session_row *row);
void copies_free(struct copies *c);
/* False: there never was a sandbox, so there are no files. */
bool copies_exist(const struct copies *c);
/* Starts the sandbox if it is stopped (its files are kept) and runs the copy. Blocks: a feed's
   thread. */
err copies_run(struct copies *c, const struct copyout_request *request,
               const struct copyout_sink *sink, struct copyout_summary *out);

/* The query parameter `path`: an absolute, clean path, in the arena. E_INVALID. */
err copies_path(struct ctx *ctx, const char *otherwise, const char **out);

#endif
