/* Sandboxes for the commands that work without a service: found by name in a data directory, made,
   started and removed by a child of ours that does what the service's maker does. While a service
   serves the directory everything here is E_CONFLICT. One thread. */
#ifndef CLI_SANDBOX_BOX_H
#define CLI_SANDBOX_BOX_H

#include "cli/command.h"
#include "cli/places.h"
#include "cli/sandbox_options.h"
#include "parent/data.h"
#include "sandbox/provider.h"

#define BOX_NAME_MAX 40

struct box {
    struct data_dir data;
    const char *runtime; /* as given, or NULL */
    struct places places;
    const struct sandbox_provider *provider;
    struct sandbox_spec spec;
    struct sandbox_place place; /* points into the rest */
    const struct box *from;     /* of a copy */
    char short_data[PATH_MAX], dir[PATH_MAX], socket[PATH_MAX], images[PATH_MAX];
    char sandboxes[PATH_MAX];
};

/* The options that `call` must have. */
#define BOX_OPTIONS                                                                                \
    OPTION_DATA, OPTION_SANDBOX_MEMORY, OPTION_ALLOW_UNENFORCED,                                   \
    {                                                                                              \
        "runtime", "DIR", NULL, "Node, Pi and ripgrep; default: beside the program"                \
    }

/* Locks DATA, beside other commands. `make`: also where there is none yet. Close with box_close,
   also after an error. */
err box_open_data(const struct invocation *call, bool make, struct box *out);
void box_close(struct box *b);

/* E_INVALID says what a name may look like. */
err box_name_check(const char *name);
/* A name that nobody has. `out` has BOX_NAME_MAX + 1 bytes. */
void box_name_new(char *out);
/* The name a sandbox got, from its label; NULL when it belongs to a session. */
const char *box_name_of(const char *tenant);

/* Points at the sandbox `id` (a session id), which may or may not exist. */
err box_point(struct box *b, const char *id);
/* Points at the sandbox with this name or session id and reads what it was made of. */
err box_find(struct box *b, const char *name);
/* The same for sandboxes and snapshots. */
err box_find_any(struct box *b, const char *name);
/* Makes `out` a copy of the files of `b`, stopped, or a snapshot. E_CONFLICT when the name is
   taken. `out` borrows from b. */
err box_fork(const struct box *b, const char *name, bool snapshot, struct box *out);
bool box_is_snapshot(const struct box *b);
/* Makes and starts a new one with the limits of `limits`. E_CONFLICT when there is one with this
   name. */
err box_make(struct box *b, const char *name, const char *image, const struct sandbox_spec *limits);
/* Starts it unless it runs. */
err box_start(struct box *b);
err box_destroy(struct box *b);

#endif
