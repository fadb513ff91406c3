/* What the parent tells its children without being asked (request.h, PARENT_NOTE_*). Each returns
   what peer_send returns. Parent's only thread. */
#ifndef PARENT_NOTES_H
#define PARENT_NOTES_H

#include <stdbool.h>

#include "base/err.h"

struct environment_key;
struct host;
struct parent_options;
struct peer;

/* `short_dir`: the data directory as roles see it that are not separate. */
err note_config(struct peer *to, const struct parent_options *o, const char *short_dir,
                bool control);
err note_listen(struct peer *to, const struct parent_options *o);
err note_credential(struct peer *to, const struct environment_key *key);
/* `known`: the broker has the socket already, only the tenant is new. */
err note_gateway(struct peer *to, const struct host *host, bool known);
err note_host_exit(struct peer *to, const struct host *host, int status);
err note_link(struct peer *to, int fd);
err note_stop(struct peer *to);

#endif
